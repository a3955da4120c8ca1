// What candidates.cu leaves and nms.cu takes.
#pragma once

typedef unsigned long long key_t64;

enum { FOUND = 0, LABEL = 1, NOT_FINITE = 2, TALLIES = 3 };  // columns of `tallies`, (frames, TALLIES) int32

// Sorting keys rising gives scores falling, then anchors rising. Adding 0 makes -0 equal to 0.
__device__ __forceinline__ key_t64 sort_key(float score, int anchor) {
    unsigned bits = __float_as_uint(__fadd_rn(score, 0.0f));
    bits = (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
    return ((key_t64)(~bits) << 32) | (unsigned)anchor;
}

__device__ __forceinline__ float score_of(key_t64 key) {
    const unsigned bits = ~(unsigned)(key >> 32);
    return __uint_as_float((bits & 0x80000000u) ? (bits & 0x7fffffffu) : ~bits);
}

__device__ __forceinline__ int anchor_of(key_t64 key) { return (int)(unsigned)key; }
