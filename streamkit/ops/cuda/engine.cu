// Steps of the fused engine beside cuDNN's convolutions: f16 values in NHWC order, sums in f32.
//
// A tensor is a view of a buffer: pointer, shape, and strides in elements; channels are contiguous. Kernels work on vectors
// of 8 channels (16 bytes); views that are passed to them begin at multiples of 8 channels, and so do their pixels.

#include <cuda_fp16.h>

typedef long long int64;
constexpr int VECTOR = 8;

struct View {
    __half* data;
    int64 image, row, column;  // strides in elements
    int batch, rows, columns, channels;
};

struct Window {
    int height, width, stride_y, stride_x, top, left, dilation_y, dilation_x;
};

// What is done with each value in turn. Operands are tensors of the same size, or of one pixel; constants f32 arrays of
// one value, one a channel, or one a pixel.
constexpr int MAX_OPERATIONS = 4;
enum Code { RELU, LEAKY_RELU, SILU, SIGMOID, HARD_SIGMOID, HARD_SWISH, CLIP, AFFINE, ADD, MULTIPLY, PIXEL_FACTOR };

struct Operation {
    int code;
    int per_channel;
    float a, b;
    const float* scale;
    const float* shift;
    const __half* operand;
    int64 image, row, column;  // strides of the operand, or of the factors of pixels
};

struct Then {
    int count;
    int unused;
    Operation operations[MAX_OPERATIONS];
};

struct Vector {
    float value[VECTOR];
};

__device__ inline Vector load(const __half* from) {
    const uint4 packed = *reinterpret_cast<const uint4*>(from);
    const __half2* pairs = reinterpret_cast<const __half2*>(&packed);
    Vector vector;
#pragma unroll
    for (int i = 0; i < VECTOR / 2; ++i) {
        const float2 pair = __half22float2(pairs[i]);
        vector.value[2 * i] = pair.x;
        vector.value[2 * i + 1] = pair.y;
    }
    return vector;
}

__device__ inline void store(__half* to, const Vector& vector) {
    uint4 packed;
    __half2* pairs = reinterpret_cast<__half2*>(&packed);
#pragma unroll
    for (int i = 0; i < VECTOR / 2; ++i) pairs[i] = __floats2half2_rn(vector.value[2 * i], vector.value[2 * i + 1]);
    *reinterpret_cast<uint4*>(to) = packed;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

__device__ inline void apply(Vector& vector, const Then& then, int image, int row, int column, int channel) {
    for (int i = 0; i < then.count; ++i) {
        const Operation& operation = then.operations[i];
        const float a = operation.a, b = operation.b;
        Vector operand;
        if (operation.code == ADD || operation.code == MULTIPLY)
            operand = load(operation.operand + image * operation.image + row * operation.row + column * operation.column + channel);
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) {
            float x = vector.value[j];
            switch (operation.code) {
                case RELU: x = fmaxf(x, 0.0f); break;
                case LEAKY_RELU: x = x > 0.0f ? x : a * x; break;
                case SILU: x = x * sigmoid(x); break;
                case SIGMOID: x = sigmoid(x); break;
                case HARD_SIGMOID: x = fminf(fmaxf(a * x + b, 0.0f), 1.0f); break;
                case HARD_SWISH: x = x * fminf(fmaxf(a * x + b, 0.0f), 1.0f); break;
                case CLIP: x = fminf(fmaxf(x, a), b); break;
                case AFFINE: {
                    const int at = operation.per_channel ? channel + j : 0;
                    x = x * operation.scale[at] + operation.shift[at];
                    break;
                }
                case ADD: x += operand.value[j]; break;
                case MULTIPLY: x *= operand.value[j]; break;
                case PIXEL_FACTOR: x *= operation.scale[row * operation.row + column * operation.column]; break;
            }
            vector.value[j] = x;
        }
    }
}

// The place of a thread: a vector of channels of one pixel. Returns whether there is such a vector.
struct Place {
    int image, row, column, channel;
};

__device__ inline bool place_of(const View& view, Place& place) {
    const int vectors = (view.channels + VECTOR - 1) / VECTOR;
    int64 index = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    place.channel = (int)(index % vectors) * VECTOR;
    index /= vectors;
    place.column = (int)(index % view.columns);
    index /= view.columns;
    place.row = (int)(index % view.rows);
    place.image = (int)(index / view.rows);
    return place.image < view.batch;
}

__device__ inline __half* at(const View& view, int image, int row, int column, int channel) {
    return view.data + image * view.image + row * view.row + column * view.column + channel;
}

extern "C" __global__ void calculate(View source, View target, Then then) {
    Place p;
    if (!place_of(target, p)) return;
    Vector vector = load(at(source, p.image, p.row, p.column, p.channel));
    apply(vector, then, p.image, p.row, p.column, p.channel);
    store(at(target, p.image, p.row, p.column, p.channel), vector);
}

// Maximum (kind 0, outside is -inf or 0), mean of the pixels inside (1) or of the whole window (2).
extern "C" __global__ void pool(View source, View target, Window window, int kind, float outside) {
    Place p;
    if (!place_of(target, p)) return;
    Vector vector;
    const float start = kind == 0 ? -__int_as_float(0x7f800000) : 0.0f;
    for (int i = 0; i < VECTOR; ++i) vector.value[i] = start;
    int inside = 0;
    for (int y = 0; y < window.height; ++y) {
        const int row = p.row * window.stride_y - window.top + y;
        for (int x = 0; x < window.width; ++x) {
            const int column = p.column * window.stride_x - window.left + x;
            if (row < 0 || row >= source.rows || column < 0 || column >= source.columns) continue;
            ++inside;
            const Vector pixel = load(at(source, p.image, row, column, p.channel));
#pragma unroll
            for (int i = 0; i < VECTOR; ++i)
                vector.value[i] = kind == 0 ? fmaxf(vector.value[i], pixel.value[i]) : vector.value[i] + pixel.value[i];
        }
    }
    const int all = window.height * window.width;
    const float factor = 1.0f / (kind == 2 ? all : inside);
    for (int i = 0; i < VECTOR; ++i) {
        if (kind != 0) vector.value[i] *= factor;
        else if (inside < all) vector.value[i] = fmaxf(vector.value[i], outside);
    }
    store(at(target, p.image, p.row, p.column, p.channel), vector);
}

// Convolution of each channel by itself: a thread computes COLUMNS neighboring outputs of 8 channels, so that it reads each
// pixel once for all of them. Weights are (height, width, channels) f32.
struct DepthwisePlace {
    int image, row, first, channel, padded;
};

template <int COLUMNS>
__device__ inline bool depthwise_place(const View& target, DepthwisePlace& place) {
    const int vectors = (target.channels + VECTOR - 1) / VECTOR;
    const int groups = (target.columns + COLUMNS - 1) / COLUMNS;
    int64 index = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    place.padded = vectors * VECTOR;
    place.channel = (int)(index % vectors) * VECTOR;
    index /= vectors;
    place.first = (int)(index % groups) * COLUMNS;
    index /= groups;
    place.row = (int)(index % target.rows);
    place.image = (int)(index / target.rows);
    return place.image < target.batch;
}

__device__ inline Vector load_f32(const float* from) {
    Vector vector;
    *reinterpret_cast<float4*>(vector.value) = *reinterpret_cast<const float4*>(from);
    *reinterpret_cast<float4*>(vector.value + 4) = *reinterpret_cast<const float4*>(from + 4);
    return vector;
}

template <int COLUMNS>
__device__ inline void depthwise_store(
    const View& target, const DepthwisePlace& place, Vector (&sums)[COLUMNS], const Then& then) {
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
        const int column = place.first + i;
        if (column >= target.columns) return;
        apply(sums[i], then, place.image, place.row, column, place.channel);
        store(at(target, place.image, place.row, column, place.channel), sums[i]);
    }
}

template <int SIZE, int STRIDE, int COLUMNS>
__device__ inline void depthwise_unrolled(
    const View& source, const View& target, const Window& window, const float* weight, const float* bias, const Then& then) {
    DepthwisePlace place;
    if (!depthwise_place<COLUMNS>(target, place)) return;
    Vector sums[COLUMNS];
    const Vector start = load_f32(bias + place.channel);
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) sums[i] = start;
    constexpr int SPAN = (COLUMNS - 1) * STRIDE + SIZE;
    const int left = place.first * STRIDE - window.left;
    for (int y = 0; y < SIZE; ++y) {
        const int row = place.row * STRIDE - window.top + y;
        if (row < 0 || row >= source.rows) continue;
        const __half* line = at(source, place.image, row, 0, place.channel);
        Vector factors[SIZE];
#pragma unroll
        for (int x = 0; x < SIZE; ++x) factors[x] = load_f32(weight + (int64)(y * SIZE + x) * place.padded + place.channel);
#pragma unroll
        for (int x = 0; x < SPAN; ++x) {
            const int column = left + x;
            if (column < 0 || column >= source.columns) continue;
            const Vector pixel = load(line + column * source.column);
#pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                const int tap = x - i * STRIDE;
                if (tap < 0 || tap >= SIZE) continue;
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) sums[i].value[j] += pixel.value[j] * factors[tap].value[j];
            }
        }
    }
    depthwise_store<COLUMNS>(target, place, sums, then);
}

#define DEPTHWISE(NAME, SIZE, STRIDE, COLUMNS)                                                                          \
    extern "C" __global__ void __launch_bounds__(128)                                                                   \
        NAME(View source, View target, Window window, const float* weight, const float* bias, Then then) {              \
        depthwise_unrolled<SIZE, STRIDE, COLUMNS>(source, target, window, weight, bias, then);                          \
    }
DEPTHWISE(depthwise_3x3, 3, 1, 4)
DEPTHWISE(depthwise_5x5, 5, 1, 4)
DEPTHWISE(depthwise_3x3_stride_2, 3, 2, 4)
DEPTHWISE(depthwise_5x5_stride_2, 5, 2, 4)

// Any size, stride and dilation.
extern "C" __global__ void depthwise(
    View source, View target, Window window, const float* weight, const float* bias, Then then) {
    constexpr int COLUMNS = 4;
    DepthwisePlace place;
    if (!depthwise_place<COLUMNS>(target, place)) return;
    Vector sums[COLUMNS];
    for (int i = 0; i < COLUMNS; ++i) sums[i] = load_f32(bias + place.channel);
    for (int y = 0; y < window.height; ++y) {
        const int row = place.row * window.stride_y - window.top + y * window.dilation_y;
        if (row < 0 || row >= source.rows) continue;
        const __half* line = at(source, place.image, row, 0, place.channel);
        for (int x = 0; x < window.width; ++x) {
            const Vector factor = load_f32(weight + (int64)(y * window.width + x) * place.padded + place.channel);
#pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                const int column = (place.first + i) * window.stride_x - window.left + x * window.dilation_x;
                if (column < 0 || column >= source.columns) continue;
                const Vector pixel = load(line + column * source.column);
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) sums[i].value[j] += pixel.value[j] * factor.value[j];
            }
        }
    }
    depthwise_store<COLUMNS>(target, place, sums, then);
}

extern "C" __global__ void enlarge_nearest(View source, View target, int scale_y, int scale_x) {
    Place p;
    if (!place_of(target, p)) return;
    const __half* from = at(source, p.image, p.row / scale_y, p.column / scale_x, p.channel);
    *reinterpret_cast<uint4*>(at(target, p.image, p.row, p.column, p.channel)) = *reinterpret_cast<const uint4*>(from);
}

extern "C" __global__ void enlarge_linear(View source, View target, int scale_y, int scale_x) {
    Place p;
    if (!place_of(target, p)) return;
    const float y = fminf(fmaxf((p.row + 0.5f) / scale_y - 0.5f, 0.0f), source.rows - 1.0f);
    const float x = fminf(fmaxf((p.column + 0.5f) / scale_x - 0.5f, 0.0f), source.columns - 1.0f);
    const int top = (int)y, left = (int)x;
    const int bottom = min(top + 1, source.rows - 1), right = min(left + 1, source.columns - 1);
    const float down = y - top, across = x - left;
    const Vector a = load(at(source, p.image, top, left, p.channel)), b = load(at(source, p.image, top, right, p.channel));
    const Vector c = load(at(source, p.image, bottom, left, p.channel)), d = load(at(source, p.image, bottom, right, p.channel));
    Vector vector;
    for (int i = 0; i < VECTOR; ++i) {
        const float above = a.value[i] * (1 - down) + c.value[i] * down;
        const float beside = b.value[i] * (1 - down) + d.value[i] * down;
        vector.value[i] = above * (1 - across) + beside * across;
    }
    store(at(target, p.image, p.row, p.column, p.channel), vector);
}

extern "C" __global__ void copy_vectors(View source, View target) {
    Place p;
    if (!place_of(target, p)) return;
    *reinterpret_cast<uint4*>(at(target, p.image, p.row, p.column, p.channel)) =
        *reinterpret_cast<const uint4*>(at(source, p.image, p.row, p.column, p.channel));
}

// One thread a value; `zeros` channels of zeros follow the last.
extern "C" __global__ void copy_values(View source, View target, int zeros) {
    const int channels = source.channels + zeros;
    int64 index = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    const int channel = (int)(index % channels);
    index /= channels;
    const int column = (int)(index % source.columns);
    index /= source.columns;
    const int row = (int)(index % source.rows), image = (int)(index / source.rows);
    if (image >= source.batch) return;
    const __half value = channel < source.channels ? *at(source, image, row, column, channel) : __half(0.0f);
    *at(target, image, row, column, channel) = value;
}

extern "C" __global__ void fill(View target) {
    Place p;
    if (place_of(target, p)) *reinterpret_cast<uint4*>(at(target, p.image, p.row, p.column, p.channel)) = uint4{0, 0, 0, 0};
}

// Mean of each channel: a block for one image and one vector of channels.
extern "C" __global__ void mean(View source, View target) {
    __shared__ float shared[256][VECTOR];
    const int vectors = (source.channels + VECTOR - 1) / VECTOR;
    const int image = blockIdx.x / vectors, channel = blockIdx.x % vectors * VECTOR;
    const int pixels = source.rows * source.columns;
    Vector sum = {};
    for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
        const Vector vector = load(at(source, image, pixel / source.columns, pixel % source.columns, channel));
        for (int i = 0; i < VECTOR; ++i) sum.value[i] += vector.value[i];
    }
    for (int i = 0; i < VECTOR; ++i) shared[threadIdx.x][i] = sum.value[i];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            for (int i = 0; i < VECTOR; ++i) shared[threadIdx.x][i] += shared[threadIdx.x + half][i];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < VECTOR; ++i) sum.value[i] = shared[0][i] / pixels;
        store(at(target, image, 0, 0, channel), sum);
    }
}

// From (batch, channels, rows, columns), dense, to a view whose pixels are blocks of `block` x `block` of them. One thread a
// pixel of the view; few channels, such as those of an image.
template <typename T>
__device__ inline void import_pixels_of(const T* source, const View& target, int channels, int block) {
    int64 index = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    const int column = (int)(index % target.columns);
    index /= target.columns;
    const int row = (int)(index % target.rows), image = (int)(index / target.rows);
    if (image >= target.batch) return;
    const int64 width = (int64)target.columns * block, plane = width * target.rows * block;
    const T* from = source + image * channels * plane + (int64)row * block * width + column * block;
    __half* to = at(target, image, row, column, 0);
    Vector vector = {};
    int filled = 0;
    for (int y = 0; y < block; ++y)
        for (int x = 0; x < block; ++x)
            for (int channel = 0; channel < channels; ++channel) {
                vector.value[filled++] = (float)from[channel * plane + y * width + x];
                if (filled == VECTOR) {
                    store(to, vector);
                    to += VECTOR;
                    vector = {};
                    filled = 0;
                }
            }
    if (filled) store(to, vector);
}

extern "C" __global__ void import_pixels_f32(const float* source, View target, int channels, int block) {
    import_pixels_of(source, target, channels, block);
}

extern "C" __global__ void import_pixels_f16(const __half* source, View target, int channels, int block) {
    import_pixels_of(source, target, channels, block);
}

// The usual case: three channels, blocks of 2 x 2 pixels, a width that is a multiple of 2. Pairs of values are read at once.
template <typename T, typename Pair>
__device__ inline void import_image_of(const T* source, const View& target) {
    int64 index = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    const int column = (int)(index % target.columns);
    index /= target.columns;
    const int row = (int)(index % target.rows), image = (int)(index / target.rows);
    if (image >= target.batch) return;
    const int64 width = (int64)target.columns * 2, plane = width * target.rows * 2;
    const T* from = source + image * 3 * plane + (int64)row * 2 * width + column * 2;
    float value[2 * VECTOR];
#pragma unroll
    for (int y = 0; y < 2; ++y)
#pragma unroll
        for (int channel = 0; channel < 3; ++channel) {
            const Pair pair = *reinterpret_cast<const Pair*>(from + channel * plane + y * width);
            value[y * 6 + channel] = (float)pair.x;
            value[y * 6 + 3 + channel] = (float)pair.y;
        }
#pragma unroll
    for (int i = 12; i < 2 * VECTOR; ++i) value[i] = 0.0f;
    Vector vector;
    __half* to = at(target, image, row, column, 0);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) vector.value[i] = value[part * VECTOR + i];
        store(to + part * VECTOR, vector);
    }
}

extern "C" __global__ void import_image_f32(const float* source, View target) { import_image_of<float, float2>(source, target); }
extern "C" __global__ void import_image_f16(const __half* source, View target) {
    import_image_of<__half, __half2>(source, target);
}

// Between (batch, channels, pixels), dense, and a view, in tiles of 32 channels and 32 pixels.
constexpr int TILE = 32;

template <typename T, bool IMPORT>
__device__ inline void transpose_of(T* outside, const View& view) {
    __shared__ float tile[TILE][TILE + 1];
    const int pixels = view.rows * view.columns;
    const int first_pixel = blockIdx.x * TILE, first_channel = blockIdx.y * TILE, image = blockIdx.z;
    const int padded = (view.channels + VECTOR - 1) / VECTOR * VECTOR;
    for (int i = threadIdx.y; i < TILE; i += blockDim.y) {
        const int channel = first_channel + (IMPORT ? i : threadIdx.x), pixel = first_pixel + (IMPORT ? threadIdx.x : i);
        float value = 0.0f;
        if (channel < view.channels && pixel < pixels)
            value = IMPORT ? (float)outside[((int64)image * view.channels + channel) * pixels + pixel]
                           : __half2float(*at(view, image, pixel / view.columns, pixel % view.columns, channel));
        tile[i][threadIdx.x] = value;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += blockDim.y) {
        const int channel = first_channel + (IMPORT ? threadIdx.x : i), pixel = first_pixel + (IMPORT ? i : threadIdx.x);
        const float value = tile[threadIdx.x][i];
        if (pixel >= pixels) continue;
        if (IMPORT && channel < padded)
            *at(view, image, pixel / view.columns, pixel % view.columns, channel) = __float2half_rn(value);
        if (!IMPORT && channel < view.channels)
            outside[((int64)image * view.channels + channel) * pixels + pixel] = (T)value;
    }
}

extern "C" __global__ void import_f32(float* outside, View view) { transpose_of<float, true>(outside, view); }
extern "C" __global__ void import_f16(__half* outside, View view) { transpose_of<__half, true>(outside, view); }
extern "C" __global__ void export_f32(float* outside, View view) { transpose_of<float, false>(outside, view); }
extern "C" __global__ void export_f16(__half* outside, View view) { transpose_of<__half, false>(outside, view); }

// The same with channels last: a thread for each vector.
template <typename T>
__device__ inline void channels_last_of(T* outside, const View& view) {
    Place p;
    if (!place_of(view, p)) return;
    const Vector vector = load(at(view, p.image, p.row, p.column, p.channel));
    T* to = outside + (((int64)p.image * view.rows + p.row) * view.columns + p.column) * view.channels + p.channel;
    const int count = min(VECTOR, view.channels - p.channel);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
        if (i < count) to[i] = (T)vector.value[i];
}

extern "C" __global__ void export_channels_last_f32(float* outside, View view) { channels_last_of<float>(outside, view); }
extern "C" __global__ void export_channels_last_f16(__half* outside, View view) { channels_last_of<__half>(outside, view); }

__device__ inline float sum_of_warp(float x) {
    for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(0xffffffffu, x, half);
    return x;
}

// Mean 0 and variance 1 in each pixel's channels, times scale plus shift: a warp for each pixel.
extern "C" __global__ void normalize(View source, View target, const float* scale, const float* shift, float epsilon) {
    int64 index = (int64)blockIdx.x * blockDim.y + threadIdx.y;
    const int column = (int)(index % target.columns);
    index /= target.columns;
    const int row = (int)(index % target.rows), image = (int)(index / target.rows);
    if (image >= target.batch) return;  // of the whole warp
    const __half* from = at(source, image, row, column, 0);
    __half* to = at(target, image, row, column, 0);
    const int channels = source.channels;
    float sum = 0.0f, squares = 0.0f;
    for (int channel = threadIdx.x * VECTOR; channel < channels; channel += 32 * VECTOR) {
        const Vector vector = load(from + channel);
        for (int i = 0; i < VECTOR; ++i) sum += channel + i < channels ? vector.value[i] : 0.0f;
    }
    const float mean = sum_of_warp(sum) / channels;
    for (int channel = threadIdx.x * VECTOR; channel < channels; channel += 32 * VECTOR) {
        const Vector vector = load(from + channel);
        for (int i = 0; i < VECTOR; ++i) {
            const float difference = channel + i < channels ? vector.value[i] - mean : 0.0f;
            squares += difference * difference;
        }
    }
    const float factor = rsqrtf(sum_of_warp(squares) / channels + epsilon);
    for (int channel = threadIdx.x * VECTOR; channel < channels; channel += 32 * VECTOR) {
        Vector vector = load(from + channel);
        const Vector scales = load_f32(scale + channel), shifts = load_f32(shift + channel);
        for (int i = 0; i < VECTOR; ++i) vector.value[i] = (vector.value[i] - mean) * factor * scales.value[i] + shifts.value[i];
        store(to + channel, vector);
    }
}

// Deformable attention, see streamkit/engine/sampling.py: the sum over points of bilinear samples with weights, f32. A group
// of `blockDim.x` threads has the channels of one head for one query.
constexpr int MAX_LEVELS = 4;

struct Level {
    const void* features;  // f16 if `narrow`, else f32
    int64 image, head, channel, row, column;  // strides in elements, as below
    const float* points;
    int64 points_image, points_head, points_query, points_point, points_axis;
    int rows, columns, count, narrow;
};

__device__ inline float feature(const Level& level, int64 at) {
    return level.narrow ? __half2float(((const __half*)level.features)[at]) : ((const float*)level.features)[at];
}

struct Attention {
    Level levels[MAX_LEVELS];
    const float* weights;
    int64 weights_image, weights_head, weights_query, weights_point;
    float* target;
    int64 target_image, target_head, target_channel, target_query;
    int level_count, batch, heads, channels, queries, unused;
};

extern "C" __global__ void attend(Attention a) {
    int64 index = (int64)blockIdx.x * blockDim.y + threadIdx.y;
    const int head = (int)(index % a.heads);
    index /= a.heads;
    const int query = (int)(index % a.queries), image = (int)(index / a.queries);
    if (image >= a.batch) return;
    const float* weight = a.weights + image * a.weights_image + head * a.weights_head + query * a.weights_query;
    for (int channel = threadIdx.x; channel < a.channels; channel += blockDim.x) {
        float sum = 0.0f;
        int point = 0;
        for (int l = 0; l < a.level_count; ++l) {
            const Level& level = a.levels[l];
            const int64 features = image * level.image + head * level.head + channel * level.channel;
            const float* places =
                level.points + image * level.points_image + head * level.points_head + query * level.points_query;
            for (int p = 0; p < level.count; ++p, ++point) {
                const float* place = places + p * level.points_point;
                const float x = ((place[0] + 1.0f) * level.columns - 1.0f) * 0.5f;
                const float y = ((place[level.points_axis] + 1.0f) * level.rows - 1.0f) * 0.5f;
                const int left = (int)floorf(x), top = (int)floorf(y);
                const float across = x - left, down = y - top;
                const bool has_left = left >= 0 && left < level.columns, has_right = left + 1 >= 0 && left + 1 < level.columns;
                float value = 0.0f;
                if (top >= 0 && top < level.rows) {
                    const int64 line = features + top * level.row + left * level.column;
                    if (has_left) value += feature(level, line) * (1.0f - across) * (1.0f - down);
                    if (has_right) value += feature(level, line + level.column) * across * (1.0f - down);
                }
                if (top + 1 >= 0 && top + 1 < level.rows) {
                    const int64 line = features + (top + 1) * level.row + left * level.column;
                    if (has_left) value += feature(level, line) * (1.0f - across) * down;
                    if (has_right) value += feature(level, line + level.column) * across * down;
                }
                sum += value * weight[point * a.weights_point];
            }
        }
        a.target[image * a.target_image + head * a.target_head + channel * a.target_channel + query * a.target_query] = sum;
    }
}
