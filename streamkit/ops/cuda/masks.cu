// Instance masks.
//
// `crop_logits`: coefficients times prototypes, within each object's box, as int8: their roots, with their signs, in steps
// of 1/16. grid (k, frames): a block makes one row's piece. All blocks of a frame work out where their piece lies from the
// boxes of the rows before, so that no order of blocks matters; the host does the same (masks.py's `crop_logits`).
//
// `mask_ends`: where the runs of an object's pixels begin and end. grid (objects): a block samples one object's piece. The
// arithmetic is that of masks.py's `_run_ends`, so equal pieces give equal masks.
//
// Defines: HALF=1 reads f16 prototypes (default f32). OWN_MAP=1: each object has a map of its own, whose number is its only
// value.

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
    signed char* all_logits) {                // (frames, room)
    const int rank = blockIdx.x, frame = blockIdx.y;
    const float* rows = all_rows + (size_t)frame * k * row_width;
    const float* to_map = all_to_map + frame * 4;

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
    }
#ifdef OWN_MAP
    if (threadIdx.x == 0) own[0] = rows[(size_t)rank * row_width + 6];
#else
    for (int c = threadIdx.x; c < coefficients && c < MOST; c += blockDim.x)
        own[c] = rows[(size_t)rank * row_width + 6 + c];
#endif
    __syncthreads();
    if (start < 0) return;

    const size_t area = (size_t)wide * high;
    const value_t* prototypes = all_prototypes + (size_t)frame * coefficients * area;
    signed char* logits = all_logits + (size_t)frame * room + start;
    for (int i = threadIdx.x; i < mine.width * mine.height; i += blockDim.x) {
        const int x = mine.x + i % mine.width, y = mine.y + i / mine.width;
        const value_t* at = prototypes + (size_t)y * wide + x;
#ifdef OWN_MAP
        const float sum = (float)at[(int)own[0] * area];
#else
        float sum = 0.0f;
        for (int c = 0; c < coefficients; ++c) sum += own[c] * (float)at[c * area];
#endif
        float root = copysignf(__fsqrt_rn(fabsf(sum)) * STEPS, sum);
        if (sum != sum) root = -LIMIT;  // no number is no part of the object
        logits[i] = (signed char)rintf(fminf(fmaxf(root, -(float)LIMIT), (float)LIMIT));
    }
}

struct Object {
    int frame, start;                    // of the piece, in the frame's memory
    int x, y, width, height;             // the piece, in places of the map
    int left, top, right, bottom;        // the box, in pixels of the frame
    int frame_height;
    int first, room;                     // where its ends are written, and how many at most
};

enum { COLUMNS = 128, ROWS = 256 };      // COLUMNS: threads of a block, one a column of pixels

// Where a pixel lies in a piece, along one axis.
__device__ __forceinline__ double place(int pixel, double scale, double offset, int map_size, int corner, int size) {
    const double at = __dsub_rn(__dadd_rn(__dmul_rn(pixel + 0.5, scale), offset), 0.5);
    const double inside = fmin(fmax(at, 0.0), (double)(map_size - 1)) - corner;
    return fmin(fmax(inside, 0.0), (double)(size - 1));
}

__device__ __forceinline__ float mix(float low, float high, float weight) {
    return __fadd_rn(__fmul_rn(low, __fsub_rn(1.0f, weight)), __fmul_rn(high, weight));
}

__device__ __forceinline__ float logit(signed char root) { return (float)root * fabsf((float)root); }

extern "C" __global__ void __launch_bounds__(COLUMNS) mask_ends(
    const signed char* all_logits, long long frame_room,  // (frames, frame_room)
    const Object* objects,
    const double* all_to_map,            // (frames, 4) scale_x, scale_y, offset_x, offset_y
    int wide, int high,                  // size of the map
    int* found) {                        // (objects) the number of ends, then the ends
    __shared__ int lowers[ROWS];
    __shared__ float weights[ROWS];
    __shared__ int sums[COLUMNS];

    const Object one = objects[blockIdx.x];
    if (one.room == 0) {
        if (threadIdx.x == 0) found[blockIdx.x] = 0;
        return;
    }
    const signed char* piece = all_logits + one.frame * frame_room + one.start;
    const double* to_map = all_to_map + one.frame * 4;
    int before = 0;                      // ends of the columns to the left
    for (int base = one.left; base < one.right; base += COLUMNS) {
        const int x = base + threadIdx.x;
        const bool active = x < one.right;
        int left = 0, right = 0;
        float across = 0.0f;
        if (active) {
            const double at = place(x, to_map[0], to_map[2], wide, one.x, one.width);
            left = (int)floor(at);
            right = min(left + 1, one.width - 1);
            across = (float)(at - left);
        }
        int position = 0;                // of the column's next end: counted from 0 first, then from its place
        for (int writing = 0; writing < 2; ++writing) {
            bool inside = false;
            int known = -1;
            float low = 0.0f, upper = 0.0f;
            for (int tile = one.top; tile < one.bottom; tile += ROWS) {
                const int rows = min(ROWS, one.bottom - tile);
                __syncthreads();
                for (int r = threadIdx.x; r < rows; r += COLUMNS) {
                    const double at = place(tile + r, to_map[1], to_map[3], high, one.y, one.height);
                    lowers[r] = (int)floor(at);
                    weights[r] = (float)(at - lowers[r]);
                }
                __syncthreads();
                if (!active) continue;
                for (int r = 0; r < rows; ++r) {
                    if (lowers[r] != known) {
                        known = lowers[r];
                        const signed char* a = piece + known * one.width;
                        const signed char* b = piece + min(known + 1, one.height - 1) * one.width;
                        low = mix(logit(a[left]), logit(a[right]), across);
                        upper = mix(logit(b[left]), logit(b[right]), across);
                    }
                    if ((mix(low, upper, weights[r]) > 0.0f) == inside) continue;
                    inside = !inside;
                    if (writing && position < one.room) found[one.first + position] = x * one.frame_height + tile + r;
                    ++position;
                }
            }
            if (inside) {                // at the foot of the box
                if (writing && position < one.room) found[one.first + position] = x * one.frame_height + one.bottom;
                ++position;
            }
            if (writing) break;
            sums[threadIdx.x] = position;
            __syncthreads();
            for (int step = 1; step < COLUMNS; step *= 2) {
                const int more = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
                __syncthreads();
                sums[threadIdx.x] += more;
                __syncthreads();
            }
            position = before + sums[threadIdx.x] - position;
            before += sums[COLUMNS - 1];
        }
    }
    if (threadIdx.x == 0) found[blockIdx.x] = before;
}
