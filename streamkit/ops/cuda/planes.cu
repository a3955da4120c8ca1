// Layout changes of raw frames on the device. The NumPy equivalents are in streamkit/ops/planes.py.

// Mirror an NV12 frame left to right, if asked for, and then turn it clockwise by 0, 90, 180 or 270 degrees.
// Grid: a thread for each block of 2x2 luma samples and one chroma pair of the output, x along columns.
// width and height are the output's, both even; rows are contiguous.
extern "C" __global__ void rotate_nv12(const unsigned char *__restrict__ in, unsigned char *__restrict__ out,
                                       const int width, const int height, const int rotation, const int mirrored)
{
    const int bx = blockIdx.x * blockDim.x + threadIdx.x;
    const int by = blockIdx.y * blockDim.y + threadIdx.y;
    if (bx >= width / 2 || by >= height / 2)
        return;
    const bool turned = rotation == 90 || rotation == 270;
    const int in_width = turned ? height : width;
    const int in_height = turned ? width : height;

    // where output sample (x, y) of a plane of (w, h) samples, whose input has rows of (across), comes from
    #define FROM(x, y, w, h, across, sx, sy)                                                                           \
        const int sx##_plain = rotation == 0 ? (x) : rotation == 90 ? (y) : rotation == 180 ? (w) - 1 - (x)            \
                                                                                            : (h) - 1 - (y);           \
        const int sx = mirrored ? (across) - 1 - sx##_plain : sx##_plain;                                              \
        const int sy = rotation == 0 ? (y) : rotation == 90 ? (w) - 1 - (x) : rotation == 180 ? (h) - 1 - (y) : (x);

    for (int dy = 0; dy < 2; ++dy) {
        uchar2 pair;
        {
            FROM(2 * bx, 2 * by + dy, width, height, in_width, sx, sy)
            pair.x = in[(size_t)sy * in_width + sx];
        }
        {
            FROM(2 * bx + 1, 2 * by + dy, width, height, in_width, sx, sy)
            pair.y = in[(size_t)sy * in_width + sx];
        }
        *(uchar2 *)(out + (size_t)(2 * by + dy) * width + 2 * bx) = pair;
    }
    const uchar2 *in_chroma = (const uchar2 *)(in + (size_t)in_width * in_height);
    uchar2 *out_chroma = (uchar2 *)(out + (size_t)width * height);
    FROM(bx, by, width / 2, height / 2, in_width / 2, sx, sy)
    out_chroma[(size_t)by * (width / 2) + bx] = in_chroma[(size_t)sy * (in_width / 2) + sx];
    #undef FROM
}

// Samples of up to 16 bits, lying in the high bits, to 8 bits: (v + 128) >> 8, clipped.
// Grid: a thread for each 4 samples; `in` is aligned to 8 bytes, `out` to 4.
extern "C" __global__ void narrow_p016(const unsigned short *__restrict__ in, unsigned char *__restrict__ out,
                                       const int count)
{
    const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 3 < count) {
        const ushort4 v = *(const ushort4 *)(in + first);
        uchar4 r;
        r.x = min((v.x + 128) >> 8, 255);
        r.y = min((v.y + 128) >> 8, 255);
        r.z = min((v.z + 128) >> 8, 255);
        r.w = min((v.w + 128) >> 8, 255);
        *(uchar4 *)(out + first) = r;
    } else {
        for (int i = first; i < count; ++i)
            out[i] = min((in[i] + 128) >> 8, 255);
    }
}

// Copy count blocks of 16 bytes; both addresses are multiples of 16. Four blocks a thread.
extern "C" __global__ void copy_blocks(uint4 *__restrict__ to, const uint4 *__restrict__ from, const size_t count)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        to[i] = from[i];
}
