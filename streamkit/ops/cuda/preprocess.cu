// Surfaces to a network's input: resize, place, convert, normalize, for a whole batch in one launch.
//
// grid  (ceil(width / 32), ceil(height / 8), batch), block (32, 8): a thread makes one network pixel of one frame, three
//       channels. A block's writes are runs of 32 pixels in each plane. With BLOCK, a thread makes one block of pixels.
// spec: one record, and behind it a Frame for each of the batch; one with new_width 0 is padding only.
// tensor: (batch, 3, height, width), or (batch, height, width, 3) where NHWC is 1, of OUT. With BLOCK, it is
//         (batch, height / BLOCK, width / BLOCK, PITCH) of __half: the 3 channels of each pixel of the block, row by row,
//         and zeros up to PITCH, a multiple of 8.
//
// Defines: OUT = float | __half | u8, NHWC = 0 | 1, ANTIALIAS = 1 or absent: where a frame becomes smaller, a pixel is the
// mean of the source's under a triangle, as in ops/resample.py. BLOCK and PITCH, or neither.

#include "color.cuh"
#include "tensor.cuh"

// One frame's part; its size, as Spec's, is a multiple of 8; ops/preprocess_cuda.py's FRAME.
struct Frame {
    Image image;
    int left, top, new_width, new_height;  // where the resized frame lies, in network pixels
    float step_x, step_y;                  // source pixels from one network pixel to the next
};

#ifdef ANTIALIAS
// The samples of one axis under a triangle: the first and last one, and the sum of their weights.
struct Taps {
    int first, last;
    float center, reach, total;

    // center: in samples, within one sample of the axis; step: samples from one output to the next; end: the last sample.
    __device__ __forceinline__ Taps(float center_, float step, int end) : center(center_), reach(fmaxf(step, 1.0f)) {
        first = max((int)ceilf(center - reach), 0);
        last = min((int)floorf(center + reach), end);
        total = 0.0f;
        for (int i = first; i <= last; ++i) total += weight(i);
    }
    __device__ __forceinline__ float weight(int i) const {
        return fmaxf(0.0f, 1.0f - fabsf((float)i - center) / reach);
    }
};

// RGB in 0..255, clipped, around a place as in `rgb_at`; step_x and step_y are luma samples from one output to the next.
__device__ __forceinline__ float3 rgb_around(const Image& p, float x, float y, float step_x, float step_y) {
    x = within(x, 0.0f, (float)(p.width - 1));
    y = within(y, 0.0f, (float)(p.height - 1));
    const Taps across(x, step_x, p.width - 1), down(y, step_y, p.height - 1);
    float luma = 0.0f;
    for (int j = down.first; j <= down.last; ++j) {
        const unsigned char* row = p.data + (size_t)j * p.pitch;
        float sum = 0.0f;
        for (int i = across.first; i <= across.last; ++i) sum += across.weight(i) * (float)__ldg(row + i);
        luma += down.weight(j) * sum;
    }
    luma /= across.total * down.total;

    const Taps wide((x - p.chroma_x) * 0.5f, step_x * 0.5f, (p.width + 1) / 2 - 1);
    const Taps high((y - p.chroma_y) * 0.5f, step_y * 0.5f, (p.height + 1) / 2 - 1);
    float u = 0.0f, v = 0.0f;
    for (int j = high.first; j <= high.last; ++j) {
        const uchar2* row = reinterpret_cast<const uchar2*>(p.data + (size_t)(p.rows + j) * p.pitch);
        float sum_u = 0.0f, sum_v = 0.0f;
        for (int i = wide.first; i <= wide.last; ++i) {
            const uchar2 pair = __ldg(row + i);
            sum_u += wide.weight(i) * (float)pair.x;
            sum_v += wide.weight(i) * (float)pair.y;
        }
        u += high.weight(j) * sum_u;
        v += high.weight(j) * sum_v;
    }
    u /= wide.total * high.total;
    v /= wide.total * high.total;

    return make_float3(within(p.y * luma + p.rv * v + p.r0, 0.0f, 255.0f),
                       within(p.y * luma + p.gu * u + p.gv * v + p.g0, 0.0f, 255.0f),
                       within(p.y * luma + p.bu * u + p.b0, 0.0f, 255.0f));
}
#endif

// The values of a network pixel of one frame, in the network's channel order.
__device__ __forceinline__ void pixel_of(const Spec& spec, const Frame& frame, int x, int y, float value[3]) {
    const int in_x = x - frame.left, in_y = y - frame.top;
    for (int channel = 0; channel < 3; ++channel) value[channel] = spec.pad[channel];
    if (in_x >= 0 && in_x < frame.new_width && in_y >= 0 && in_y < frame.new_height) {
        const float at_x = ((float)in_x + 0.5f) * frame.step_x - 0.5f, at_y = ((float)in_y + 0.5f) * frame.step_y - 0.5f;
#ifdef ANTIALIAS
        const float3 rgb = rgb_around(frame.image, at_x, at_y, frame.step_x, frame.step_y);
#else
        const float3 rgb = rgb_at(frame.image, at_x, at_y);
#endif
        normalize(spec, rgb, value);
    }
}

#ifdef BLOCK
__device__ __forceinline__ size_t row_length(const Spec& spec) {
    return (size_t)(spec.width / BLOCK) * (spec.height / BLOCK) * PITCH;
}

// One thread's block of pixels of one frame; `tensor` is that frame's row of the batch.
__device__ __forceinline__ void write_pixels(const Spec& spec, const Frame& frame, OUT* tensor) {
    const int columns = spec.width / BLOCK;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= columns || row >= spec.height / BLOCK) return;

    __align__(16) __half values[PITCH] = {};
#pragma unroll
    for (int part = 0; part < BLOCK * BLOCK; ++part) {
        float value[3];
        pixel_of(spec, frame, column * BLOCK + part % BLOCK, row * BLOCK + part / BLOCK, value);
        for (int channel = 0; channel < 3; ++channel) values[part * 3 + channel] = __float2half_rn(value[channel]);
    }
    uint4* to = reinterpret_cast<uint4*>(tensor + ((size_t)row * columns + column) * PITCH);
#pragma unroll
    for (int i = 0; i < PITCH / 8; ++i) to[i] = reinterpret_cast<const uint4*>(values)[i];
}
#else
__device__ __forceinline__ size_t row_length(const Spec& spec) { return (size_t)spec.width * spec.height * 3; }

// One thread's pixel of one frame; `tensor` is that frame's row of the batch.
__device__ __forceinline__ void write_pixels(const Spec& spec, const Frame& frame, OUT* tensor) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= spec.width || y >= spec.height) return;
    float value[3];
    pixel_of(spec, frame, x, y, value);
    write(spec, x, y, value, tensor);
}
#endif

extern "C" __global__ void preprocess(const Spec* spec, OUT* tensor) {
    const size_t row = row_length(*spec);
    write_pixels(*spec, reinterpret_cast<const Frame*>(spec + 1)[blockIdx.z], tensor + blockIdx.z * row);
}

// The same for one frame, whose parameters come with the launch.
extern "C" __global__ void preprocess_one(const Spec spec, const Frame frame, OUT* tensor) {
    write_pixels(spec, frame, tensor);
}
