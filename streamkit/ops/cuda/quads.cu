// Quadrilaterals of frames to rows of a network's input, seen from the front; see ops/quads.py.
//
// grid  (ceil(width / 32), ceil(height / 8), quads), block (32, 8): a thread makes one network pixel, three channels.
// tensor: (batch, 3, height, width), or (batch, height, width, 3) where NHWC is 1, of OUT.
//
// Defines: OUT = float | __half | u8, NHWC = 0 | 1.

#include "color.cuh"
#include "tensor.cuh"

// One quadrilateral; ops/quads.py's QUAD.
struct Quad {
    Image image;
    int left, top, new_width, new_height;  // where it lies in the input, in network pixels
    float matrix[9];                       // from the unit square to pixels counted from the frame's edge
    int taps;                              // a network pixel is the mean of taps x taps samples
    int row;                               // of the tensor
    int unused;
};

extern "C" __global__ void quads(const Spec* spec, const Quad* all, OUT* tensor) {
    const Quad& q = all[blockIdx.z];
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= spec->width || y >= spec->height) return;

    const int in_x = x - q.left, in_y = y - q.top;
    float value[3] = {spec->pad[0], spec->pad[1], spec->pad[2]};
    if (in_x >= 0 && in_x < q.new_width && in_y >= 0 && in_y < q.new_height) {
        const float* m = q.matrix;
        float3 sum = make_float3(0.0f, 0.0f, 0.0f);
        for (int j = 0; j < q.taps; ++j) {
            const float v = ((float)in_y + ((float)j + 0.5f) / q.taps) / q.new_height;
            for (int i = 0; i < q.taps; ++i) {
                const float u = ((float)in_x + ((float)i + 0.5f) / q.taps) / q.new_width;
                const float divisor = m[6] * u + m[7] * v + m[8];
                const float3 rgb = rgb_at(q.image, (m[0] * u + m[1] * v + m[2]) / divisor - 0.5f,
                                          (m[3] * u + m[4] * v + m[5]) / divisor - 0.5f);
                sum.x += rgb.x, sum.y += rgb.y, sum.z += rgb.z;
            }
        }
        const float share = 1.0f / (q.taps * q.taps);
        normalize(*spec, make_float3(sum.x * share, sum.y * share, sum.z * share), value);
    }
    const size_t area = (size_t)spec->width * spec->height;
    write(*spec, x, y, value, tensor + (size_t)q.row * area * 3);
}
