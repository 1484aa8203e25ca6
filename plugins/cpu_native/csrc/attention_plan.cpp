// Splits a step's attention into pieces.
#include "attention_plan.h"

#include <algorithm>

namespace {

using namespace llmfw::attention;

constexpr int64_t TILE_ROWS = 96;         // maximum rows of a piece, which share one read of the keys
constexpr int64_t READING_ROWS = 8;       // reading and packing keys costs as much as this many rows
constexpr int64_t PIECES_PER_THREAD = 4;  // so that threads finish at about the same time
constexpr int64_t BATCHES_PER_THREAD = 8; // for the same reason
constexpr int64_t FEW_ROWS = 16;          // rows per KV head up to which a piece is bound by memory bandwidth
constexpr int64_t NEAR_BYTES = 1 << 18;   // of a block's keys and values in a piece: two blocks stay in a core's cache

constexpr int64_t SIZES[] = {4, 2, 2};  // bytes per number, by AttentionShape::dtype

}  // namespace

void AttentionPlan::cut(const AttentionShape& shape, int64_t threads) {
    members.clear();
    segments_.clear();
    cut_tokens(shape);
    share(shape);
    for (size_t i = 0; i < spans.size(); ++i) add_alone(static_cast<int32_t>(i), spans[i].last_chunk);
    cut_segments(shape, threads);
    keep_results(shape);
    cut_heads(shape, threads);
    make_batches(threads);
}

// Splits the tokens of each sequence into spans.
void AttentionPlan::cut_tokens(const AttentionShape& shape) {
    const int64_t at_once = std::max<int64_t>(1, TILE_ROWS / group_of(shape));
    spans.clear();
    covered_.clear();
    int64_t token = 0;
    for (int64_t sequence = 0; sequence < step.num_sequences; ++sequence) {
        const int64_t count = step.query_lens[sequence], start = step.kv_lens[sequence] - count;
        for (int64_t first = 0; first < count; first += at_once) {
            const int64_t position = start + first, many = std::min(at_once, count - first);
            const int64_t seen_from = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;
            const int64_t last_chunk = (position + many + CHUNK - 1) / CHUNK;
            spans.push_back({sequence, token + first, position, many, seen_from / CHUNK, last_chunk, 0, -1, -1});
            covered_.push_back(seen_from / CHUNK);
        }
        token += count;
    }
}

// Finds chunks of keys that several sequences share, so that these are read once.
void AttentionPlan::share(const AttentionShape& shape) {
    if (step.num_sequences < 2) return;
    shared_.clear();
    for (size_t i = 0; i < spans.size(); ++i) {
        const Span& span = spans[i];
        if (2 * num_rows(span, shape) > TILE_ROWS) continue;
        const int64_t end = span.position + span.num_tokens;
        const int64_t seen_by_all = shape.window > 0 ? std::max<int64_t>(0, end - shape.window) : 0;
        shared_.add({span.sequence, (seen_by_all + CHUNK - 1) / CHUNK, span.position / CHUNK, static_cast<int64_t>(i)});
    }
    shared_.find(step);
    for (const SharedChunks::Group& group : shared_.groups()) add_shared(group, shape);
}

// Splits a group into segments of at most TILE_ROWS rows. A span that is left alone is handled as if it shared nothing.
void AttentionPlan::add_shared(const SharedChunks::Group& group, const AttentionShape& shape) {
    int64_t next = group.first_member;
    const int64_t end = next + group.num_members;
    while (next < end) {
        const int64_t first_member = static_cast<int64_t>(members.size());
        for (int64_t rows = 0; next < end; ++next) {
            const int64_t i = shared_.name(next);
            rows += num_rows(spans[i], shape);
            if (rows > TILE_ROWS) break;
            members.push_back(static_cast<int32_t>(i));
        }
        const int64_t num_members = static_cast<int64_t>(members.size()) - first_member;
        if (num_members == 1) {
            members.pop_back();
            continue;
        }
        segments_.push_back({first_member, num_members, group.first_chunk, group.last_chunk, 0, 0, 0});
        for (int64_t member = first_member; member < first_member + num_members; ++member) {
            const int32_t i = members[member];
            add_alone(i, group.first_chunk);
            covered_[i] = group.last_chunk;
        }
    }
}

// Adds a segment of this span alone, with the chunks before `chunk` that are in no segment yet.
void AttentionPlan::add_alone(int32_t i, int64_t chunk) {
    if (covered_[i] >= chunk) return;
    segments_.push_back({static_cast<int64_t>(members.size()), 1, covered_[i], chunk, 0, 0, 0});
    members.push_back(i);
    covered_[i] = chunk;
}

int64_t AttentionPlan::rows_of(const Piece& piece, const AttentionShape& shape) const {
    int64_t rows = 0;
    for (int64_t i = 0; i < piece.num_members; ++i)
        rows += num_rows(member(piece, i), shape);
    return rows;
}

// The cost of a piece for one KV head, in blocks of keys × rows.
int64_t AttentionPlan::cost_of(const Piece& piece, const AttentionShape& shape) const {
    const int64_t blocks = (end_key(piece) - first_key(piece, shape) + BLOCK - 1) / BLOCK;
    return blocks * (rows_of(piece, shape) + READING_ROWS);
}

// Splits the keys of each segment into pieces, so that all threads have work.
void AttentionPlan::cut_segments(const AttentionShape& shape, int64_t threads) {
    cost = 0;
    for (Piece& segment : segments_) cost += segment.cost = cost_of(segment, shape);
    const int64_t goal = threads > 1 ? cost / (threads * PIECES_PER_THREAD) : cost;
    whole_.clear();
    for (const Piece& segment : segments_) {
        const int64_t chunks = segment.last_chunk - segment.first_chunk;
        const int64_t at_once = std::clamp<int64_t>(goal * chunks / segment.cost, 1, chunks);
        for (Piece piece = segment; piece.first_chunk < segment.last_chunk; piece.first_chunk = piece.last_chunk) {
            piece.last_chunk = std::min(piece.first_chunk + at_once, segment.last_chunk);
            piece.cost = cost_of(piece, shape);
            whole_.push_back(piece);
            for (int64_t i = 0; i < piece.num_members; ++i) {
                Span& span = spans[members[piece.first_member + i]];
                if (span.first_chunk == piece.first_chunk) span.first_end = piece.last_chunk;
            }
        }
    }
}

// Allocates the partial results and counters of spans with several pieces.
void AttentionPlan::keep_results(const AttentionShape& shape) {
    int64_t num_floats = 0, num_counters = 0;
    for (Span& span : spans) {
        if (span.first_end == span.last_chunk) continue;
        span.results = num_floats;
        span.counter = num_counters++;
        num_floats += span.num_results() * shape.num_kv_heads * result_size(span, shape);
    }
    if (static_cast<int64_t>(results.size()) < num_floats) results.resize(num_floats);
    if (static_cast<int64_t>(counters.size()) < num_counters)
        counters = std::vector<std::atomic<int64_t>>(num_counters);
    for (std::atomic<int64_t> &counter : counters) counter.store(0, std::memory_order_relaxed);
}

// Splits pieces by KV heads. A piece with few rows keeps several heads together, because their keys are adjacent in
// memory; but each thread should get about two pieces.
void AttentionPlan::cut_heads(const AttentionShape& shape, int64_t threads) {
    const int64_t heads = shape.num_kv_heads;
    const int64_t near = NEAR_BYTES / (BLOCK * (shape.head_dim + shape.v_head_dim) * SIZES[shape.dtype]);
    const int64_t wanted = threads > 1 ? heads * static_cast<int64_t>(whole_.size()) / (2 * threads) : heads;
    const int64_t few = std::max<int64_t>(1, std::min({heads, near, wanted}));
    pieces.clear();
    for (Piece piece : whole_) {
        const int64_t at_once = rows_of(piece, shape) <= FEW_ROWS ? few : 1, cost_of_head = piece.cost;
        for (piece.first_head = 0; piece.first_head < heads; piece.first_head += at_once) {
            piece.num_heads = std::min(at_once, heads - piece.first_head);
            piece.cost = cost_of_head * piece.num_heads;
            pieces.push_back(piece);
        }
    }
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
}

// Groups pieces into batches. Within a batch, the keys of the next piece are prefetched while one is computed.
void AttentionPlan::make_batches(int64_t threads) {
    int64_t all = 0, taken = 0;
    for (const Piece& piece : pieces) all += piece.cost;
    const int64_t goal = threads > 1 ? all / (threads * BATCHES_PER_THREAD) : all;
    batches.clear();
    for (size_t i = 0; i < pieces.size(); ++i) {
        if (i == 0 || taken + pieces[i].cost > goal) {
            batches.push_back(static_cast<int32_t>(i));
            taken = 0;
        }
        taken += pieces[i].cost;
    }
}
