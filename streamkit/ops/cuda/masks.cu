// The logits of instance masks: coefficients times prototypes, within each object's box, as int8: their roots, with
// their signs, in steps of 1/16.
//
// grid (k, frames): a block makes one row's piece. All blocks of a frame work out where their piece lies from the boxes of
// the rows before, so that no order of blocks matters; the host does the same (masks.py's `crop_logits`).
//
// Defines: HALF=1 reads f16 prototypes (default f32).

#ifdef HALF
#include <cuda_fp16.h>
typedef __half value_t;
#else
typedef float value_t;
#endif

enum { STEPS = 16, LIMIT = 127, MOST = 256 };  // MOST: coefficients held in shared memory

struct Crop {
    int x, y, width, height;
};

__device__ __forceinline__ int between(float value, int low, int high) {
    return (int)fminf(fmaxf(value, (float)low), (float)high);
}

// The places of the map that a box's pixels are sampled from; masks.py's `_crop_rect`.
__device__ __forceinline__ Crop crop_rect(const float* box, const float* to_map, int wide, int high) {
    const float x1 = __fsub_rn(__fadd_rn(__fmul_rn(box[0], to_map[0]), to_map[2]), 0.5f);
    const float y1 = __fsub_rn(__fadd_rn(__fmul_rn(box[1], to_map[1]), to_map[3]), 0.5f);
    const float x2 = __fsub_rn(__fadd_rn(__fmul_rn(box[2], to_map[0]), to_map[2]), 0.5f);
    const float y2 = __fsub_rn(__fadd_rn(__fmul_rn(box[3], to_map[1]), to_map[3]), 0.5f);
    const int x = between(floorf(x1), 0, wide - 1), y = between(floorf(y1), 0, high - 1);
    return Crop{x, y, between(floorf(x2) + 2.0f, x + 1, wide) - x, between(floorf(y2) + 2.0f, y + 1, high) - y};
}

extern "C" __global__ void crop_logits(
    const float* all_rows, int row_width,     // (frames, k, row_width): box, score, class, coefficients
    const int* all_counts, int count_width,   // (frames, count_width): rows in use first
    const value_t* all_prototypes, int coefficients, int wide, int high,  // (frames, coefficients, high, wide)
    const float* all_to_map,                  // (frames, 4) scale_x, scale_y, offset_x, offset_y
    int k, int room,
    int* all_rects,                           // (frames, k, 4)
    signed char* all_logits) {                // (frames, room)
    const int rank = blockIdx.x, frame = blockIdx.y;
    const float* rows = all_rows + (size_t)frame * k * row_width;
    const float* to_map = all_to_map + frame * 4;
    int* rect = all_rects + ((size_t)frame * k + rank) * 4;

    __shared__ int start;
    __shared__ Crop mine;
    __shared__ float own[MOST];
    if (threadIdx.x == 0) {
        start = -1;
        if (rank < all_counts[frame * count_width]) {
            int used = 0;
            for (int i = 0; i <= rank; ++i) {
                const Crop p = crop_rect(rows + (size_t)i * row_width, to_map, wide, high);
                const bool fits = used + p.width * p.height <= room;
                if (i == rank && fits) {
                    start = used;
                    mine = p;
                }
                if (fits) used += p.width * p.height;
            }
        }
        rect[0] = start < 0 ? 0 : mine.x;
        rect[1] = start < 0 ? 0 : mine.y;
        rect[2] = start < 0 ? 0 : mine.width;
        rect[3] = start < 0 ? 0 : mine.height;
    }
    for (int c = threadIdx.x; c < coefficients && c < MOST; c += blockDim.x)
        own[c] = rows[(size_t)rank * row_width + 6 + c];
    __syncthreads();
    if (start < 0) return;

    const size_t area = (size_t)wide * high;
    const value_t* prototypes = all_prototypes + (size_t)frame * coefficients * area;
    signed char* logits = all_logits + (size_t)frame * room + start;
    for (int i = threadIdx.x; i < mine.width * mine.height; i += blockDim.x) {
        const int x = mine.x + i % mine.width, y = mine.y + i / mine.width;
        const value_t* at = prototypes + (size_t)y * wide + x;
        float sum = 0.0f;
        for (int c = 0; c < coefficients; ++c) sum += own[c] * (float)at[c * area];
        float root = copysignf(__fsqrt_rn(fabsf(sum)) * STEPS, sum);
        if (sum != sum) root = -LIMIT;  // no number is no part of the object
        logits[i] = (signed char)rintf(fminf(fmaxf(root, -(float)LIMIT), (float)LIMIT));
    }
}
