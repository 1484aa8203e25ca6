// Plans a step's attention, and runs it on the threads.
#include "attention.h"

#include <atomic>
#include <vector>

#include "attention_tile.h"
#include "pairs.h"
#include "pool.h"

using namespace llmfw::attention;

namespace {

constexpr int64_t TILE_ROWS = 96;         // rows that share a reading of keys
constexpr int64_t READING_ROWS = 8;       // to read and pack keys costs as much as so many rows
constexpr int64_t PIECES_PER_THREAD = 4;  // so that no thread waits long for another
constexpr int64_t TOKENS_AT_ONCE = 64;    // that one thread writes to their slots

// Some chunks of keys of one tile. There is the same work for each key/value head.
struct Piece {
    int64_t tile, first_chunk, last_chunk, cost;
};

int64_t group_of(const AttentionShape& shape) { return shape.num_heads / shape.num_kv_heads; }

int64_t part_size(const Tile& tile, const AttentionShape& shape) {
    return Part::num_floats(tile.num_tokens * group_of(shape), padded_columns(shape.v_head_dim));
}

template <typename Stored>
void write_row(const void* from, int64_t token_stride, int64_t head_stride, int64_t token, int64_t heads, int64_t size,
               void* to, int64_t slot) {
    const Stored* row = static_cast<const Stored*>(from) + token * token_stride;
    Stored* out = static_cast<Stored*>(to) + slot * heads * size;
    for (int64_t head = 0; head < heads; ++head)
        std::memcpy(out + head * size, row + head * head_stride, size * sizeof(Stored));
}

template <typename Stored>
void write_tokens(const AttentionShape& shape, const AttentionStep& step, const AttentionTensors& tensors,
                  int64_t chunk) {
    const int64_t end = std::min(step.num_tokens, (chunk + 1) * TOKENS_AT_ONCE);
    for (int64_t token = chunk * TOKENS_AT_ONCE; token < end; ++token) {
        const int64_t slot = step.slots[token];
        write_row<Stored>(tensors.key, tensors.key_token_stride, tensors.key_head_stride, token, shape.num_kv_heads,
                          shape.head_dim, tensors.keys, slot);
        write_row<Stored>(tensors.value, tensors.value_token_stride, tensors.value_head_stride, token,
                          shape.num_kv_heads, shape.v_head_dim, tensors.values, slot);
    }
}

}  // namespace

struct AttentionPlan {
    AttentionStep step = {};
    std::vector<Tile> tiles;
    std::vector<Piece> pieces;
    std::vector<float> parts;
    std::vector<std::atomic<int64_t>> counters;

    // Cut the tokens of each sequence into tiles.
    void cut_tokens(const AttentionShape& shape) {
        const int64_t at_once = std::max<int64_t>(1, TILE_ROWS / group_of(shape));
        tiles.clear();
        int64_t token = 0;
        for (int64_t sequence = 0; sequence < step.num_sequences; ++sequence) {
            const int64_t count = step.query_lens[sequence], start = step.kv_lens[sequence] - count;
            for (int64_t first = 0; first < count; first += at_once) {
                const int64_t position = start + first, many = std::min(at_once, count - first);
                const int64_t seen_from = shape.window > 0 ? std::max<int64_t>(0, position + 1 - shape.window) : 0;
                const int64_t last_chunk = (position + many + CHUNK - 1) / CHUNK;
                tiles.push_back({sequence, token + first, position, many, seen_from / CHUNK, last_chunk, -1, -1});
            }
            token += count;
        }
    }

    // Cut the keys of each tile into pieces of work, so that all threads have some.
    void cut_keys(const AttentionShape& shape, int64_t threads) {
        const int64_t heads = shape.num_kv_heads;
        int64_t all = 0, num_floats = 0, num_counters = 0;
        for (const Tile& tile : tiles) all += heads * (tile.last_chunk - tile.first_chunk) * cost_of_chunk(tile, shape);
        const int64_t goal = threads > 1 ? all / (threads * PIECES_PER_THREAD) : all;
        pieces.clear();
        for (Tile& tile : tiles) {
            const int64_t chunks = tile.last_chunk - tile.first_chunk, cost = cost_of_chunk(tile, shape);
            const int64_t at_once = std::clamp<int64_t>(goal / cost, 1, chunks);
            for (int64_t chunk = tile.first_chunk; chunk < tile.last_chunk; chunk += at_once) {
                const int64_t last = std::min(chunk + at_once, tile.last_chunk);
                pieces.push_back({&tile - tiles.data(), chunk, last, (last - chunk) * cost});
            }
            if (at_once == chunks) continue;
            tile.parts = num_floats;
            tile.counter = num_counters;
            num_floats += heads * chunks * part_size(tile, shape);
            num_counters += heads;
        }
        std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
        if (static_cast<int64_t>(parts.size()) < num_floats) parts.resize(num_floats);
        if (static_cast<int64_t>(counters.size()) < num_counters)
            counters = std::vector<std::atomic<int64_t>>(num_counters);
        for (std::atomic<int64_t> &counter : counters) counter.store(0, std::memory_order_relaxed);
    }

    static int64_t cost_of_chunk(const Tile& tile, const AttentionShape& shape) {
        return tile.num_tokens * group_of(shape) + READING_ROWS;
    }

    // Do a piece of work for one head. Whoever finishes a tile's last chunk joins what all of them gave.
    template <typename Stored, typename Factor>
    void attend(const AttentionShape& shape, const AttentionTensors& tensors, const Piece& piece, int64_t head) {
        thread_local Scratch scratch;
        const Tile& tile = tiles[piece.tile];
        TileWork<Stored, Factor> work(shape, step, tensors, tile, head, scratch);
        if (tile.parts < 0) return work.attend();
        const int64_t size = part_size(tile, shape), chunks = tile.last_chunk - tile.first_chunk;
        float* mine = parts.data() + tile.parts + head * chunks * size;
        work.attend(piece.first_chunk, piece.last_chunk, mine + (piece.first_chunk - tile.first_chunk) * size, size);
        std::atomic<int64_t> &done = counters[tile.counter + head];
        const int64_t now = piece.last_chunk - piece.first_chunk;
        if (done.fetch_add(now) + now < chunks) return;
        done.store(0);  // for the next layer
        work.join(mine, size);
    }

};

namespace llmfw {

int64_t attention_write_chunks(const AttentionPlan& plan) {
    return (plan.step.num_tokens + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE;
}

void attention_write_chunk(const AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors,
                           int64_t chunk) {
    write_tokens<Scalar>(shape, plan.step, tensors, chunk);
}

int64_t attention_chunks(const AttentionPlan& plan, const AttentionShape& shape) {
    return static_cast<int64_t>(plan.pieces.size()) * shape.num_kv_heads;
}

int64_t attention_work(const AttentionPlan& plan, const AttentionShape& shape) {
    int64_t cost = 0;
    for (const Piece& piece : plan.pieces) cost += piece.cost;
    return cost * CHUNK * shape.num_kv_heads * (shape.head_dim + shape.v_head_dim);
}

void attention_chunk(AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors, int64_t chunk) {
    const Piece& piece = plan.pieces[chunk / shape.num_kv_heads];
    const int64_t head = chunk % shape.num_kv_heads;
#if LLMFW_DTYPE == 1 && LLMFW_PAIRS
    if (shape.in_pairs) return plan.attend<Scalar, uint32_t>(shape, tensors, piece, head);
#endif
    plan.attend<Scalar, float>(shape, tensors, piece, head);
}

}  // namespace llmfw

extern "C" {

AttentionPlan* llmfw_attention_plan_new() { return new AttentionPlan; }

void llmfw_attention_plan_free(AttentionPlan* plan) { delete plan; }

void llmfw_attention_plan(AttentionPlan* plan, const AttentionStep* step, const AttentionShape* shape) {
    plan->step = *step;
    plan->cut_tokens(*shape);
    plan->cut_keys(*shape, llmfw::num_threads());
}

void llmfw_attention(AttentionPlan* plan, const AttentionShape* shape, const AttentionTensors* tensors) {
    const auto write = [&](int64_t chunk) { llmfw::attention_write_chunk(*plan, *shape, *tensors, chunk); };
    const auto attend = [&](int64_t chunk) { llmfw::attention_chunk(*plan, *shape, *tensors, chunk); };
    const int64_t chunks = llmfw::attention_write_chunks(*plan);
    if (tensors->key != nullptr && chunks > 1) llmfw::parallel_for(chunks, write);
    if (tensors->key != nullptr && chunks == 1) write(0);  // sooner done than handed out
    llmfw::parallel_for(llmfw::attention_chunks(*plan, *shape), attend);
}

int32_t llmfw_attention_pairs() { return llmfw::pairs(); }

int64_t llmfw_attention_num_pieces(const AttentionPlan* plan) { return static_cast<int64_t>(plan->pieces.size()); }
}
