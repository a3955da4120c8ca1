// Maps of values over frames; see frame_maps.py, whose NumPy equivalents give equal numbers and bytes.
//
// medians: a block of 256 threads for each object. Its places, at most 64x64, are held in registers as integers in the
// order of the values; the lower median is found bit by bit, from the highest.
// paint: a thread for each 2x2 block of pixels, frames in z. Integers only.

typedef unsigned char byte;

struct Sample {
    int frame, x, y, step_x, step_y, columns, rows;
    int mask;  // its first flag, or -1
};

struct Layer {
    const byte* from;    // NV12, rows of `width` bytes
    byte* to;            // the same, or `from` itself
    const byte* levels;  // rows of `pitch` bytes
    int width, height, pitch;
    int across, down, colors;  // where they begin in the table
};

enum { THREADS = 256, WARPS = THREADS / 32, PLACES = 64 * 64 / THREADS };

__device__ __forceinline__ int block_sum(int count, int* parts) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) count += __shfl_down_sync(0xffffffffu, count, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = count;
    __syncthreads();
    int sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += parts[w];
    __syncthreads();  // the next sum overwrites `parts`
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
medians(const float* maps, int height, int width, const Sample* samples, const byte* flags, float* out) {
    __shared__ int parts[WARPS];
    const Sample s = samples[blockIdx.x];
    const float* map = maps + (size_t)s.frame * height * width;
    const int places = s.columns * s.rows;
    unsigned keys[PLACES];
    unsigned valid = 0;
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
        const int place = threadIdx.x + THREADS * i;
        keys[i] = 0;
        if (place >= places || (s.mask >= 0 && !flags[s.mask + place])) continue;
        const int row = place / s.columns, column = place % s.columns;
        const unsigned bits = __float_as_uint(map[(size_t)(s.y + row * s.step_y) * width + s.x + column * s.step_x]);
        if ((bits & 0x7f800000u) == 0x7f800000u) continue;  // infinity and NaN
        keys[i] = bits >> 31 ? ~bits : bits | 0x80000000u;
        valid |= 1u << i;
    }
    const int total = block_sum(__popc(valid), parts);
    if (total == 0) {
        if (threadIdx.x == 0) out[blockIdx.x] = __uint_as_float(0x7fc00000u);
        return;
    }
    int rank = (total - 1) / 2;
    unsigned prefix = 0, above = 0;  // the bits of the median that are known, and which these are
    for (int bit = 31; bit >= 0; bit--) {
        const unsigned here = 1u << bit;
        int zeros = 0;
#pragma unroll
        for (int i = 0; i < PLACES; i++)
            zeros += (valid >> i & 1u) && (keys[i] & above) == prefix && !(keys[i] & here);
        zeros = block_sum(zeros, parts);
        if (rank >= zeros) {
            rank -= zeros;
            prefix |= here;
        }
        above |= here;
    }
    if (threadIdx.x == 0) out[blockIdx.x] = __uint_as_float(prefix >> 31 ? prefix & 0x7fffffffu : ~prefix);
}

__device__ __forceinline__ byte mix(int under, unsigned over, int share) {
    return (byte)((under * (255 - share) + (int)(over & 255u) * share + 127) / 255);
}

extern "C" __global__ void paint(const Layer* layers, const int* table) {
    const Layer l = layers[blockIdx.z];
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= l.width / 2 || row >= l.height / 2) return;  // the grid is as large as the largest frame
    const int* x = table + l.across + 3 * column;
    const int* y = table + l.down + 3 * row;
    const byte* upper = l.levels + (size_t)y[0] * l.pitch;
    const byte* lower = l.levels + (size_t)y[1] * l.pitch;
    const int a = upper[x[0]], b = upper[x[1]], c = lower[x[0]], d = lower[x[1]];
    unsigned color = 0;
    if (a && b && c && d) {
        const int first = a * (256 - x[2]) + b * x[2], second = c * (256 - x[2]) + d * x[2];
        color = (unsigned)table[l.colors + ((first * (256 - y[2]) + second * y[2] + (1 << 15)) >> 16)];
    }
    const int share = (int)(color >> 24);
    const size_t luma = (size_t)(2 * row) * l.width + 2 * column;
    const size_t chroma = (size_t)(l.height + row) * l.width + 2 * column;
    const uchar2 top = *(const uchar2*)(l.from + luma), bottom = *(const uchar2*)(l.from + luma + l.width);
    const uchar2 pair = *(const uchar2*)(l.from + chroma);
    *(uchar2*)(l.to + luma) = make_uchar2(mix(top.x, color, share), mix(top.y, color, share));
    *(uchar2*)(l.to + luma + l.width) = make_uchar2(mix(bottom.x, color, share), mix(bottom.y, color, share));
    *(uchar2*)(l.to + chroma) = make_uchar2(mix(pair.x, color >> 8, share), mix(pair.y, color >> 16, share));
}
