// Finds which sequences of a step have the same chunks of keys: those that begin with the same prompt.
//
// Chunks are compared by the pages that they are in. Nothing is taken for granted of how pages are given out.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"

namespace llmfw::attention {

constexpr int64_t CHUNK = 256;  // keys

class SharedChunks {
public:
    // A sequence whose rows all see its chunks [first, last) from one end to the other. `name` is the caller's.
    struct Candidate {
        int64_t sequence, first, last, name;
    };
    // Two candidates or more, whose chunks [first_chunk, last_chunk) are in the same pages.
    struct Group {
        int64_t first_member, num_members, first_chunk, last_chunk;
    };

    void clear() { candidates_.clear(); }
    void add(const Candidate& candidate) {
        if (candidate.first < candidate.last) candidates_.push_back(candidate);
    }
    // Find all groups of what was added, ordered by their first chunks. A chunk of a sequence is in one group at most.
    void find(const AttentionStep& step);

    const std::vector<Group>& groups() const { return groups_; }
    int64_t name(int64_t member) const { return candidates_[members_[member]].name; }

private:
    struct Place {
        int32_t page;       // the last one of a chunk
        int32_t candidate;
    };

    void take_groups(const AttentionStep& step, int64_t chunk);
    void add_group(const Place* begin, const Place* end, int64_t chunk);

    std::vector<Candidate> candidates_;
    std::vector<Place> places_;     // of the candidates that have the chunk at hand
    std::vector<Group> groups_;
    std::vector<int32_t> members_;  // of groups, by number of candidate
    std::vector<int32_t> newest_;   // of each candidate: the last group that it came first in; -1: none
};

}  // namespace llmfw::attention
