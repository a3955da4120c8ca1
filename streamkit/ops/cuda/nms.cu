// Select a batch's objects among the candidates that candidates.cu left: one block a frame.
//
// Sort by key (score falling, anchor rising), then go down the list: each candidate that is still alive takes the worse
// ones that overlap it out (greedy non-max suppression), is brought to source pixels, clipped, measured, and written.
// It ends when `top_k` objects are written. Any number of candidates is taken; nothing is cut off before the sort.
//
// Dynamic shared memory: ceil(anchors / 32) * 4 bytes. Block: a multiple of 32 threads, at most 1024.
// Float32, never contracted, in the order of the NumPy equivalent (nms.py, boxes.py).

#include "candidates.cuh"

#define SHARED_KEYS 2048
#define WARP 32
#define ALL_LANES 0xffffffffu

// Bitonic sort, rising; `count` is a power of two.
__device__ void sort(key_t64* keys, int count) {
    for (int size = 2; size <= count; size <<= 1) {
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            for (int i = threadIdx.x; i < count / 2; i += blockDim.x) {
                const int low = 2 * i - (i & (stride - 1)), high = low + stride;
                const key_t64 a = keys[low], b = keys[high];
                if ((a > b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
            __syncthreads();
        }
    }
}

// The first living candidate at or after `position`, or `count`.
__device__ __forceinline__ int next_alive(const unsigned* alive, int position, int count) {
    if (position >= count) return count;
    const int words = (count + 31) / 32;
    int word = position / 32;
    unsigned bits = alive[word] & (ALL_LANES << (position % 32));
    while (!bits && ++word < words) bits = alive[word];
    return bits ? word * 32 + __ffs((int)bits) - 1 : count;
}

__device__ __forceinline__ float area(float4 b) {
    return __fmul_rn(fmaxf(__fsub_rn(b.z, b.x), 0.0f), fmaxf(__fsub_rn(b.w, b.y), 0.0f));
}

__device__ __forceinline__ bool overlap(float4 a, float area_a, float4 b, float iou) {
    const float w = fmaxf(__fsub_rn(fminf(a.z, b.z), fmaxf(a.x, b.x)), 0.0f);
    const float h = fmaxf(__fsub_rn(fminf(a.w, b.w), fmaxf(a.y, b.y)), 0.0f);
    const float both = __fmul_rn(w, h);
    return both > __fmul_rn(iou, __fsub_rn(__fadd_rn(area_a, area(b)), both));
}

// A rotated box as a Gaussian: its center and covariance, of its corners (rotated.py). Float64, never contracted.
struct Gaussian {
    double x, y, xx, yy, xy;
};

__device__ __forceinline__ double moment(double a, double b, double c, double d) {
    return __ddiv_rn(__dadd_rn(__dmul_rn(a, b), __dmul_rn(c, d)), 12.0);
}

__device__ __forceinline__ Gaussian gaussian(const float* p) {
    const double wx = __dsub_rn(p[2], p[0]), wy = __dsub_rn(p[3], p[1]);
    const double hx = __dsub_rn(p[6], p[0]), hy = __dsub_rn(p[7], p[1]);
    return Gaussian{__dmul_rn(__dadd_rn(p[0], p[4]), 0.5), __dmul_rn(__dadd_rn(p[1], p[5]), 0.5),
                    moment(wx, wx, hx, hx), moment(wy, wy, hy, hy), moment(wx, wy, hx, hy)};
}

// a * b - c * d
__device__ __forceinline__ double cross(double a, double b, double c, double d) {
    return __dsub_rn(__dmul_rn(a, b), __dmul_rn(c, d));
}

// Whether the Bhattacharyya distance of two boxes is below the limit, so that their probabilistic IoU is above `iou`.
__device__ __forceinline__ bool close(const Gaussian& a, const Gaussian& b, double limit) {
    const double epsilon = 1e-7;
    const double xx = __dadd_rn(a.xx, b.xx), yy = __dadd_rn(a.yy, b.yy), xy = __dadd_rn(a.xy, b.xy);
    const double x = __dsub_rn(a.x, b.x), y = __dsub_rn(a.y, b.y), both = cross(xx, yy, xy, xy);
    const double across = __dadd_rn(__dmul_rn(xx, __dmul_rn(y, y)), __dmul_rn(yy, __dmul_rn(x, x)));
    const double turned = __dmul_rn(__dmul_rn(2.0, xy), __dmul_rn(x, y));
    const double apart = __ddiv_rn(__dsub_rn(across, turned), __dadd_rn(both, epsilon));
    const double each = __dmul_rn(fmax(cross(a.xx, a.yy, a.xy, a.xy), 0.0), fmax(cross(b.xx, b.yy, b.xy, b.xy), 0.0));
    const double share = __ddiv_rn(both, __dadd_rn(__dmul_rn(4.0, __dsqrt_rn(each)), epsilon));
    const double distance = __dadd_rn(__dmul_rn(0.25, apart), __dmul_rn(0.5, log(__dadd_rn(share, epsilon))));
    return fmax(distance, epsilon) < limit;
}

__device__ __forceinline__ float to_source(float v, float scale, float offset) {
    return __fdiv_rn(__fsub_rn(v, offset), scale);
}

__device__ __forceinline__ float clip(float v, float limit) { return fminf(fmaxf(v, 0.0f), limit); }

extern "C" __global__ void __launch_bounds__(1024) select_objects(
    key_t64* all_keys,         // (frames, capacity), unsorted; sorted in place where they are too many to be shared
    const int* all_tallies,    // (frames, TALLIES)
    const float4* all_boxes,   // (frames, anchors) network pixels
    const int* all_classes,    // (frames, anchors)
    const float* all_points,   // (frames, anchors, columns) further values of an anchor
    int anchors, int capacity, int columns,
    int step,                  // of points: 2 x and y in network pixels, 3 x, y and a score, 0 no places
    const float* all_geometry,  // (frames, 6) scale_x, scale_y, offset_x, offset_y, frame's width, height
    int suppress, float iou, int agnostic,
    int rotated, double limit,  // points are the corners of rotated boxes, which overlap within that distance
    int top_k, float min_size, float max_size,
    float4* all_sorted_boxes, int* all_sorted_classes,  // scratch, (frames, anchors)
    float* all_rows,            // (frames, top_k, 6 + columns)
    int* all_counts) {          // (frames, 8): kept, then removed by cause, as nms.py's CAUSES
    __shared__ key_t64 shared_keys[SHARED_KEYS];
    __shared__ int rest;
    extern __shared__ unsigned alive[];  // a bit a candidate, in sorted order

    const int frame = blockIdx.x, thread = threadIdx.x;
    const int* tally = all_tallies + frame * TALLIES;
    const int count = tally[FOUND], words = (count + 31) / 32;
    key_t64* keys = all_keys + (size_t)frame * capacity;
    const float4* boxes = all_boxes + (size_t)frame * anchors;
    const int* classes = all_classes + (size_t)frame * anchors;
    const float* points = all_points + (size_t)frame * anchors * columns;
    float4* sorted_boxes = all_sorted_boxes + (size_t)frame * anchors;
    int* sorted_classes = all_sorted_classes + (size_t)frame * anchors;
    const float* g = all_geometry + frame * 6;
    const int width = 6 + columns;
    float* rows = all_rows + (size_t)frame * top_k * width;

    int padded = 1;
    while (padded < count) padded <<= 1;
    if (padded <= SHARED_KEYS) {
        for (int i = thread; i < count; i += blockDim.x) shared_keys[i] = keys[i];
        keys = shared_keys;
    }
    for (int i = count + thread; i < padded; i += blockDim.x) keys[i] = ~0ull;
    for (int w = thread; w < words; w += blockDim.x) {
        const int left = count - w * 32;
        alive[w] = left >= 32 ? ALL_LANES : (1u << left) - 1u;
    }
    if (thread == 0) rest = 0;
    __syncthreads();
    sort(keys, padded);
    for (int i = thread; i < count; i += blockDim.x) {
        const int anchor = anchor_of(keys[i]);
        sorted_boxes[i] = boxes[anchor];
        sorted_classes[i] = classes[anchor];
    }
    __syncthreads();

    // From here all threads hold the same position and counts; each looks at its share of the worse candidates.
    int position = 0, kept = 0, outside = 0, size = 0;
    while (kept < top_k) {
        position = next_alive(alive, position, count);
        if (position >= count) break;
        const float4 box = sorted_boxes[position];
        const int class_id = sorted_classes[position];
        const float x1 = clip(to_source(box.x, g[0], g[2]), g[4]), y1 = clip(to_source(box.y, g[1], g[3]), g[5]);
        const float x2 = clip(to_source(box.z, g[0], g[2]), g[4]), y2 = clip(to_source(box.w, g[1], g[3]), g[5]);
        const float w = __fsub_rn(x2, x1), h = __fsub_rn(y2, y1);
        if (!(w > 0.0f && h > 0.0f)) {
            ++outside;
        } else if (fminf(w, h) < min_size || fmaxf(w, h) > max_size) {
            ++size;
        } else {
            float* row = rows + (size_t)kept * width;
            const key_t64 key = keys[position];
            if (thread == 0) {
                row[0] = x1, row[1] = y1, row[2] = x2, row[3] = y2;
                row[4] = score_of(key);
                row[5] = (float)class_id;
            }
            const float* own = points + (size_t)anchor_of(key) * columns;
            for (int c = thread; c < columns; c += blockDim.x) {
                const int axis = step ? c % step : 2;  // 0 x, 1 y, else as it is
                row[6 + c] = axis < 2 ? to_source(own[c], g[axis], g[2 + axis]) : own[c];
            }
            ++kept;
        }
        if (suppress) {
            __syncthreads();  // every thread has read `alive`
            const float own_area = area(box);
            Gaussian own_shape;
            if (rotated) own_shape = gaussian(points + (size_t)anchor_of(keys[position]) * columns);
            const int lane = thread % WARP, warps = blockDim.x / WARP;
            for (int word = position / 32 + thread / WARP; word < words; word += warps) {
                const unsigned live = alive[word];  // this warp alone writes this word
                if (!live) continue;
                const int other = word * 32 + lane;
                bool hit = false;
                if (other > position && (live >> lane & 1u) && (agnostic || sorted_classes[other] == class_id))
                    hit = rotated ? close(own_shape, gaussian(points + (size_t)anchor_of(keys[other]) * columns), limit)
                                  : overlap(box, own_area, sorted_boxes[other], iou);
                const unsigned hits = __ballot_sync(ALL_LANES, hit);
                if (lane == 0 && hits) alive[word] = live & ~hits;
            }
            __syncthreads();  // every word is written
        }
        ++position;
    }

    // Candidates that remain, after the last one wanted.
    int mine = 0;
    for (int word = position / 32 + thread; word < words; word += blockDim.x) {
        const unsigned bits = alive[word];
        mine += __popc(word == position / 32 ? bits & (ALL_LANES << (position % 32)) : bits);
    }
    if (mine) atomicAdd(&rest, mine);
    for (int i = kept * width + thread; i < top_k * width; i += blockDim.x) rows[i] = 0.0f;
    __syncthreads();
    if (thread == 0) {
        int* counts = all_counts + frame * 8;
        counts[0] = kept;
        counts[1] = anchors - count - tally[LABEL] - tally[NOT_FINITE];  // min_score
        counts[2] = tally[LABEL];
        counts[3] = tally[NOT_FINITE];
        counts[4] = count - kept - outside - size - rest;  // nms
        counts[5] = outside;
        counts[6] = size;
        counts[7] = rest;  // top_k
    }
}
