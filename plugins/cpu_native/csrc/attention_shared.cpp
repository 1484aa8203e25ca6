#include "attention_shared.h"

#include <algorithm>
#include <cstring>

namespace llmfw::attention {

namespace {

const int32_t* pages_of(const AttentionStep& step, int64_t sequence) {
    return step.page_table + step.rows[sequence] * step.table_stride;
}

}  // namespace

void SharedChunks::find(const AttentionStep& step) {
    groups_.clear();
    members_.clear();
    newest_.assign(candidates_.size(), -1);
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.first < b.first; });
    places_.clear();
    size_t next = 0;
    // If all candidates start at the same chunk, prefixes form a tree: a candidate that shares no chunk with another
    // one shares no later chunk, either.
    const bool is_tree = candidates_.empty() || candidates_.back().first == candidates_.front().first;
    for (int64_t chunk = candidates_.empty() ? 0 : candidates_.front().first;; ++chunk) {
        if (places_.empty() && next < candidates_.size()) chunk = std::max(chunk, candidates_[next].first);
        for (; next < candidates_.size() && candidates_[next].first == chunk; ++next)
            places_.push_back({0, static_cast<int32_t>(next)});
        std::erase_if(places_, [&](Place place) { return candidates_[place.candidate].last <= chunk; });
        if (places_.size() < 2 && next == candidates_.size()) return;
        take_groups(step, chunk);
        if (is_tree) std::erase_if(places_, [](Place place) { return place.page < 0; });
    }
}

// Finds the groups of one chunk. Sets the page of candidates that are in no group to -1.
void SharedChunks::take_groups(const AttentionStep& step, int64_t chunk) {
    const int64_t first_page = chunk * CHUNK / step.page_size;
    const int64_t last_page = ((chunk + 1) * CHUNK - 1) / step.page_size;
    const size_t num_bytes = (last_page + 1 - first_page) * sizeof(int32_t);
    const auto pages = [&](const Place& place) {
        return pages_of(step, candidates_[place.candidate].sequence) + first_page;
    };
    for (Place& place : places_) place.page = pages(place)[last_page - first_page];
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
        return a.page != b.page ? a.page < b.page : a.candidate < b.candidate;
    });
    Place* const end = places_.data() + places_.size();
    for (Place* begin = places_.data(); begin != end;) {
        Place* const run = std::find_if(begin, end, [&](const Place& place) { return place.page != begin->page; });
        Place* const same = std::stable_partition(begin + 1, run, [&](const Place& place) {
            return std::memcmp(pages(place), pages(*begin), num_bytes) == 0;
        });
        if (same - begin > 1)
            add_group(begin, same, chunk);
        else
            begin->page = -1;
        begin = same;
    }
}

// Adds a chunk to the group of the previous chunk if that has the same members, else to a new group.
void SharedChunks::add_group(const Place* begin, const Place* end, int64_t chunk) {
    const int32_t newest = newest_[begin->candidate];
    if (newest >= 0) {
        Group& group = groups_[newest];
        const int32_t* members = members_.data() + group.first_member;
        if (group.last_chunk == chunk && group.num_members == end - begin &&
            std::equal(begin, end, members,
                       [](const Place& place, int32_t member) { return place.candidate == member; })) {
            ++group.last_chunk;
            return;
        }
    }
    newest_[begin->candidate] = static_cast<int32_t>(groups_.size());
    groups_.push_back({static_cast<int64_t>(members_.size()), end - begin, chunk, chunk + 1});
    for (const Place* place = begin; place != end; ++place) members_.push_back(place->candidate);
}

}  // namespace llmfw::attention
