// Finds sequences of a step that share chunks of keys, because their prompts start with the same prefix.
//
// Compares the pages of chunks. Assumes nothing about how pages are allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"

namespace llmfw::attention {

constexpr int64_t CHUNK = 256;  // keys per chunk

class SharedChunks {
public:
    // A sequence of which every row sees all keys of the chunks [first, last). `name`: any number, for the caller.
    struct Candidate {
        int64_t sequence, first, last, name;
    };
    // Two or more candidates, whose chunks [first_chunk, last_chunk) are in the same pages.
    struct Group {
        int64_t first_member, num_members, first_chunk, last_chunk;
    };

    void clear() { candidates_.clear(); }
    void add(const Candidate& candidate) {
        if (candidate.first < candidate.last) candidates_.push_back(candidate);
    }
    // Finds all groups among the candidates, ordered by their first chunks. A chunk of a sequence is in at most one
    // group.
    void find(const AttentionStep& step);

    const std::vector<Group>& groups() const { return groups_; }
    int64_t name(int64_t member) const { return candidates_[members_[member]].name; }

private:
    // A candidate and its page of the current chunk.
    struct Place {
        int32_t page;       // the last page of the current chunk; -1: the chunk is in no group
        int32_t candidate;
    };

    void take_groups(const AttentionStep& step, int64_t chunk);
    void add_group(const Place* begin, const Place* end, int64_t chunk);

    std::vector<Candidate> candidates_;
    std::vector<Place> places_;     // of the candidates that have the current chunk
    std::vector<Group> groups_;
    std::vector<int32_t> members_;  // candidates of all groups, by index
    std::vector<int32_t> newest_;   // for each candidate: the latest group of which it is the first member; -1: none
};

}  // namespace llmfw::attention
