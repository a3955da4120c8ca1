// How a kernel reads an NV12 frame: the rule of ops/color.py, its host implementation.

#pragma once

// One frame in device memory. The layout is ops/color.py's IMAGE.
struct Image {
    const unsigned char* data;  // first luma row; the rows of interleaved Cb and Cr follow after `rows` of them
    int width, height;          // the true size in pixels; nothing outside it is read as luma
    int pitch, rows;            // bytes from row to row; luma rows, padding included
    float chroma_x, chroma_y;   // where chroma sits, in luma pixels from its block's top left one
    float y, rv, gu, gv, bu;    // rgb in 0..255 = (y * Y + rv * V + r0, y * Y + gu * U + gv * V + g0, ...)
    float r0, g0, b0;
};

__device__ __forceinline__ float mix(float a, float b, float weight) { return a + (b - a) * weight; }

__device__ __forceinline__ float within(float value, float low, float high) { return fminf(fmaxf(value, low), high); }

// RGB in 0..255, clipped, at a place in pixels counted from pixel centers: (0, 0) is the first pixel's center.
// A place outside the frame reads its edge.
__device__ __forceinline__ float3 rgb_at(const Image& p, float x, float y) {
    x = within(x, 0.0f, (float)(p.width - 1));
    y = within(y, 0.0f, (float)(p.height - 1));
    const int x0 = (int)x, x1 = min(x0 + 1, p.width - 1);
    const int y0 = (int)y, y1 = min(y0 + 1, p.height - 1);
    const float wx = x - (float)x0, wy = y - (float)y0;
    const unsigned char* upper = p.data + (size_t)y0 * p.pitch;
    const unsigned char* lower = p.data + (size_t)y1 * p.pitch;
    const float luma = mix(mix((float)__ldg(upper + x0), (float)__ldg(upper + x1), wx),
                           mix((float)__ldg(lower + x0), (float)__ldg(lower + x1), wx), wy);

    const int last_x = (p.width + 1) / 2 - 1, last_y = (p.height + 1) / 2 - 1;
    const float cx = within((x - p.chroma_x) * 0.5f, 0.0f, (float)last_x);
    const float cy = within((y - p.chroma_y) * 0.5f, 0.0f, (float)last_y);
    const int cx0 = (int)cx, cx1 = min(cx0 + 1, last_x);
    const int cy0 = (int)cy, cy1 = min(cy0 + 1, last_y);
    const float vx = cx - (float)cx0, vy = cy - (float)cy0;
    const uchar2* above = reinterpret_cast<const uchar2*>(p.data + (size_t)(p.rows + cy0) * p.pitch);
    const uchar2* below = reinterpret_cast<const uchar2*>(p.data + (size_t)(p.rows + cy1) * p.pitch);
    const uchar2 a = __ldg(above + cx0), b = __ldg(above + cx1), c = __ldg(below + cx0), d = __ldg(below + cx1);
    const float u = mix(mix((float)a.x, (float)b.x, vx), mix((float)c.x, (float)d.x, vx), vy);
    const float v = mix(mix((float)a.y, (float)b.y, vx), mix((float)c.y, (float)d.y, vx), vy);

    return make_float3(within(p.y * luma + p.rv * v + p.r0, 0.0f, 255.0f),
                       within(p.y * luma + p.gu * u + p.gv * v + p.g0, 0.0f, 255.0f),
                       within(p.y * luma + p.bu * u + p.b0, 0.0f, 255.0f));
}
