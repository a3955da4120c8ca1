// Corners of frames at low resolution, and their flow from one frame to another; see camera_motion.py, whose equivalent
// on the host is OpenCV's.

enum { LEVELS = 4, RADIUS = 7, WINDOW = 2 * RADIUS + 1, CELL = 20, MARGIN = 10, LANES = 32 };
enum { PER_LANE = (WINDOW * WINDOW + LANES - 1) / LANES, BLOCK = 256 };

struct View {
    const unsigned char* source;  // the frame's first luma row
    unsigned char* levels;        // the small luma, then its smaller levels
    float2* corners;              // of each cell
    int pitch;                    // bytes from row to row of the frame
    int step;                     // pixels of the frame that become one, along each side
    int width, height;            // of the small luma
    int box_start, box_count;     // its detections
    int columns, rows;            // of cells
    int unused[2];
};

struct Pair {
    const unsigned char *before, *now;  // the levels of both frames
    const float2* corners;              // of the first
    float4* flow;                       // x, y of each corner in the first frame and in the second; NaN if it is lost
    int width, height;                  // of the small luma
    int count;                          // corners
    int unused;
};

// A level's size and the offset of its first pixel: each level has half the pixels, rounded up, on a side.
struct Level {
    int width, height;
    size_t start;
};

__device__ inline Level level_of(const int width, const int height, const int level) {
    Level l = {width, height, 0};
    for (int n = 0; n < level; ++n) {
        l.start += (size_t)l.width * l.height;
        l.width = (l.width + 1) / 2;
        l.height = (l.height + 1) / 2;
    }
    return l;
}

// The rounded mean of step x step pixels. Grid: a thread for each pixel of the small luma, y the frame.
extern "C" __global__ void shrink(const View* views) {
    const View v = views[blockIdx.y];
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= v.width * v.height) return;
    const int x = at % v.width, y = at / v.width;
    const unsigned char* row = v.source + (size_t)y * v.step * v.pitch + (size_t)x * v.step;
    unsigned int sum = 0;
    for (int j = 0; j < v.step; ++j, row += v.pitch)
        for (int i = 0; i < v.step; ++i) sum += row[i];
    const unsigned int count = v.step * v.step;
    v.levels[at] = (sum + count / 2) / count;
}

// A border without a repeated edge: -1 is 1.
__device__ inline int mirrored(const int at, const int count) {
    const int within = at < 0 ? -at : at >= count ? 2 * count - 2 - at : at;
    return min(max(within, 0), count - 1);
}

// The smaller levels, each from the one before it as OpenCV's pyrDown: every second pixel, smoothed by 1 4 6 4 1 on both
// sides. All threads of a block.
__device__ void halve(const View v) {
    const int weights[5] = {1, 4, 6, 4, 1};
    for (int level = 1; level < LEVELS; ++level) {
        const Level from = level_of(v.width, v.height, level - 1), to = level_of(v.width, v.height, level);
        for (int at = threadIdx.x; at < to.width * to.height; at += BLOCK) {
            const int x = at % to.width * 2, y = at / to.width * 2;
            int sum = 128;
            for (int j = -2; j <= 2; ++j) {
                const unsigned char* row = v.levels + from.start + (size_t)mirrored(y + j, from.height) * from.width;
                for (int i = -2; i <= 2; ++i) sum += weights[j + 2] * weights[i + 2] * row[mirrored(x + i, from.width)];
            }
            v.levels[to.start + at] = sum >> 8;
        }
        __syncthreads();
    }
}

// The smaller eigenvalue of the products of Sobel gradients, summed over 3x3 pixels.
__device__ inline float corner_strength(const unsigned char* luma, const int width, const int x, const int y) {
    float xx = 0, xy = 0, yy = 0;
    for (int j = -1; j <= 1; ++j)
        for (int i = -1; i <= 1; ++i) {
            const unsigned char* p = luma + (y + j) * width + x + i;
            const int across = (int)p[1 - width] - p[-1 - width] + 2 * ((int)p[1] - p[-1]) + p[1 + width] - p[width - 1];
            const int down = (int)p[width - 1] - p[-width - 1] + 2 * ((int)p[width] - p[-width]) + p[width + 1] - p[1 - width];
            xx += across * across;
            xy += across * down;
            yy += down * down;
        }
    const float half = (xx - yy) / 2;
    return (xx + yy) / 2 - sqrtf(half * half + xy * xy);
}

// The strongest corner of a cell that is in no box, NaN if it is weaker than `threshold`. All lanes of a warp.
__device__ void strongest_corner(const View v, const int cell, const int4* boxes, const float threshold) {
    const int lane = threadIdx.x % LANES;
    const int left = MARGIN + cell % v.columns * CELL, top = MARGIN + cell / v.columns * CELL;
    float best = -1;
    int best_at = 0;
    for (int at = lane; at < CELL * CELL; at += LANES) {
        const int x = left + at % CELL, y = top + at / CELL;
        bool inside = false;
        for (int b = 0; b < v.box_count && !inside; ++b) {
            const int4 box = boxes[v.box_start + b];
            inside = x >= box.x && y >= box.y && x < box.z && y < box.w;
        }
        const float strength = inside ? 0.0f : corner_strength(v.levels, v.width, x, y);
        if (strength > best) {
            best = strength;
            best_at = at;
        }
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, best, offset);
        const int other_at = __shfl_xor_sync(0xffffffffu, best_at, offset);
        if (other > best || (other == best && other_at < best_at)) {
            best = other;
            best_at = other_at;
        }
    }
    if (lane == 0) {
        const float nan = __int_as_float(0x7fffffff);
        v.corners[cell] = best < threshold ? make_float2(nan, nan)
                                       : make_float2(left + best_at % CELL, top + best_at / CELL);
    }
}

// What follows from the small luma: its smaller levels and its corners. Boxes are left, top, right and bottom in pixels
// of the small luma, the ends exclusive. Grid: a block for the levels, then a warp for each cell; y the frame.
extern "C" __global__ void __launch_bounds__(BLOCK)
    describe(const View* views, const int4* boxes, const float threshold) {
    const View v = views[blockIdx.y];
    if (blockIdx.x == 0) {
        halve(v);
        return;
    }
    const int cell = ((blockIdx.x - 1) * BLOCK + threadIdx.x) / LANES;
    if (cell < v.columns * v.rows) strongest_corner(v, cell, boxes, threshold);
}

struct Luma {
    const unsigned char* pixels;
    int width, height;
};

// A pixel between others, bilinear; beyond the border the nearest one.
__device__ inline float sample(const Luma luma, float x, float y) {
    x = fminf(fmaxf(x, 0.0f), luma.width - 1.0f);
    y = fminf(fmaxf(y, 0.0f), luma.height - 1.0f);
    const int left = (int)x, top = (int)y;
    const int right = min(left + 1, luma.width - 1), bottom = min(top + 1, luma.height - 1);
    const float fx = x - left, fy = y - top;
    const unsigned char *upper = luma.pixels + top * luma.width, *lower = luma.pixels + bottom * luma.width;
    return (1 - fy) * ((1 - fx) * upper[left] + fx * upper[right]) + fy * ((1 - fx) * lower[left] + fx * lower[right]);
}

// The same in all lanes, bit by bit, because a + b = b + a.
__device__ inline float warp_sum(float value) {
    for (int offset = LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// Where each corner of the first frame is in the second: Lucas and Kanade's iteration at each level, the smallest
// first, with the gradients of Scharr. Grid: a warp for each corner, y the pair.
extern "C" __global__ void __launch_bounds__(LANES) flow(const Pair* pairs, const int iterations, const float precision) {
    const Pair p = pairs[blockIdx.y];
    if (blockIdx.x >= p.count) return;
    const float2 at = p.corners[blockIdx.x];
    const float nan = __int_as_float(0x7fffffff);
    float dx = 0, dy = 0;
    bool lost = !(at.x == at.x);
    for (int level = LEVELS - 1; level >= 0 && !lost; --level) {
        const Level size = level_of(p.width, p.height, level);
        const Luma before = {p.before + size.start, size.width, size.height};
        const Luma now = {p.now + size.start, size.width, size.height};
        const float x = at.x / (1 << level), y = at.y / (1 << level);
        float pixel[PER_LANE], across[PER_LANE], down[PER_LANE];
        float xx = 0, xy = 0, yy = 0;
        #pragma unroll
        for (int k = 0; k < PER_LANE; ++k) {
            const int i = threadIdx.x + k * LANES;
            const float px = x + i % WINDOW - RADIUS, py = y + i / WINDOW - RADIUS;
            float left[3], right[3];
            for (int j = 0; j < 3; ++j) {
                left[j] = sample(before, px - 1, py + j - 1);
                right[j] = sample(before, px + 1, py + j - 1);
            }
            const float upper = sample(before, px, py - 1), lower = sample(before, px, py + 1);
            pixel[k] = sample(before, px, py);
            across[k] = (3 * (right[0] - left[0] + right[2] - left[2]) + 10 * (right[1] - left[1])) / 32;
            down[k] = (3 * (left[2] - left[0] + right[2] - right[0]) + 10 * (lower - upper)) / 32;
            if (i >= WINDOW * WINDOW) across[k] = down[k] = 0;
            xx += across[k] * across[k];
            xy += across[k] * down[k];
            yy += down[k] * down[k];
        }
        xx = warp_sum(xx);
        xy = warp_sum(xy);
        yy = warp_sum(yy);
        dx *= 2;
        dy *= 2;
        const float determinant = xx * yy - xy * xy;
        if (determinant < 1e-3f * (xx + yy) * (xx + yy) || xx + yy < 1.0f) {  // an edge or nothing: no place is better
            lost = level == 0;
            continue;
        }
        for (int n = 0; n < iterations; ++n) {
            float bx = 0, by = 0;
            #pragma unroll
            for (int k = 0; k < PER_LANE; ++k) {
                const int i = threadIdx.x + k * LANES;
                const float px = x + dx + i % WINDOW - RADIUS, py = y + dy + i / WINDOW - RADIUS;
                const float difference = sample(now, px, py) - pixel[k];
                bx += difference * across[k];
                by += difference * down[k];
            }
            bx = warp_sum(bx);
            by = warp_sum(by);
            const float step_x = (xy * by - yy * bx) / determinant, step_y = (xy * bx - xx * by) / determinant;
            dx += step_x;
            dy += step_y;
            if (step_x * step_x + step_y * step_y < precision * precision) break;
        }
    }
    const float x = at.x + dx, y = at.y + dy;
    lost = lost || !(x >= 0 && y >= 0 && x <= p.width - 1 && y <= p.height - 1);  // also NaN
    if (threadIdx.x == 0) p.flow[blockIdx.x] = make_float4(at.x, at.y, lost ? nan : x, lost ? nan : y);
}
