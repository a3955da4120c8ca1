// Draw every frame of a batch: tiles of 64x64 pixels in x and y, frames in z, 256 threads a tile.
//
// A tile collects, in order, the marks of its frame that touch it, at most 256 at a time, and each thread puts them
// onto its own 2x2 blocks of pixels. So no pixel has two writers, and marks lie on each other in the order of the
// table. A tile without marks is copied as it is, or left alone where the drawing is in place. All places are even
// (overlay.py): a 2x2 block, which has one chroma sample, is inside a mark or outside. Integers only, rounded as in the
// NumPy equivalent.

typedef unsigned char byte;

struct Frame {
    const byte* from;  // NV12, rows of `width` bytes
    byte* to;          // the same, or `from` itself
    int width, height;
    int first, last;   // its marks
};

struct Mark {
    int x1, y1, x2, y2;
    int border;      // 0: all of it
    unsigned color;  // Y, Cb, Cr, opacity, from the low byte up
    unsigned ink;
    int sprite;      // where in the atlas, or -1, LINE, STENCIL; overlay.py's MARK says what they are
};

struct Patch {
    byte y[4], cb, cr;
};

enum { LINE = -2, STENCIL = -3 };
enum { TILE = 64, THREADS = 256, WARPS = THREADS / 32, PATCHES = TILE * TILE / 4 / THREADS };

__device__ __forceinline__ byte mix(int under, unsigned over, int share) {
    return (byte)((under * (255 - share) + (int)(over & 255u) * share + 127) / 255);
}

__device__ __forceinline__ bool touches(const Mark& m, int left, int top) {
    if (m.x1 >= left + TILE || m.x2 <= left || m.y1 >= top + TILE || m.y2 <= top) return false;
    const bool hollow = m.sprite != LINE && m.border > 0 && left >= m.x1 + m.border && left + TILE <= m.x2 - m.border &&
                        top >= m.y1 + m.border && top + TILE <= m.y2 - m.border;
    return !hollow;
}

// Whether the block at x, y is on a line.
__device__ __forceinline__ bool on_line(const Mark& m, int x, int y) {
    const int half = m.border / 2;
    const bool rises = m.ink != 0;
    const long long ax = m.x1 + half, bx = m.x2 - half;
    const long long ay = rises ? m.y2 - half : m.y1 + half, by = rises ? m.y1 + half : m.y2 - half;
    const long long dx = bx - ax, dy = by - ay, px = x + 1 - ax, py = y + 1 - ay;
    const long long length = dx * dx + dy * dy, along = px * dx + py * dy, beside = px * dy - py * dx;
    const long long wide = (long long)m.border * m.border;
    if (along <= 0) return (px * px + py * py) * 4 <= wide;
    if (along >= length) return ((px - dx) * (px - dx) + (py - dy) * (py - dy)) * 4 <= wide;
    return 4 * beside * beside <= wide * length;
}

// Whether the bit of the block at x, y is set.
__device__ __forceinline__ bool in_stencil(const Mark& m, int x, int y, const byte* stencils) {
    const int column = (x - m.x1) / 2, row = (y - m.y1) / 2, bytes = ((m.x2 - m.x1) / 2 + 7) / 8;
    return stencils[m.ink + (size_t)row * bytes + column / 8] >> (7 - column % 8) & 1;
}

__device__ __forceinline__ void put(Patch& p, const Mark& m, int x, int y, const byte* atlas, const byte* stencils) {
    if (x < m.x1 || x >= m.x2 || y < m.y1 || y >= m.y2) return;
    if (m.sprite == LINE && !on_line(m, x, y)) return;
    if (m.sprite == STENCIL && !in_stencil(m, x, y, stencils)) return;
    const int b = m.sprite == LINE ? 0 : m.border;
    if (b > 0 && x >= m.x1 + b && x < m.x2 - b && y >= m.y1 + b && y < m.y2 - b) return;
    const int opacity = (int)(m.color >> 24);
#pragma unroll
    for (int i = 0; i < 4; i++) p.y[i] = mix(p.y[i], m.color, opacity);
    p.cb = mix(p.cb, m.color >> 8, opacity);
    p.cr = mix(p.cr, m.color >> 16, opacity);
    if (m.sprite < 0) return;
    const int width = m.x2 - m.x1, height = m.y2 - m.y1, column = x - m.x1, row = y - m.y1;
    const byte* luma = atlas + m.sprite + row * width + column;
    const int chroma = atlas[m.sprite + width * height + (row / 2) * (width / 2) + column / 2];
    p.y[0] = mix(p.y[0], m.ink, luma[0]);
    p.y[1] = mix(p.y[1], m.ink, luma[1]);
    p.y[2] = mix(p.y[2], m.ink, luma[width]);
    p.y[3] = mix(p.y[3], m.ink, luma[width + 1]);
    p.cb = mix(p.cb, m.ink >> 8, chroma);
    p.cr = mix(p.cr, m.ink >> 16, chroma);
}

// Where a 2x2 block lies: widths and places are even, so pairs of bytes are aligned.
__device__ __forceinline__ size_t luma_at(const Frame& f, int x, int y) { return (size_t)y * f.width + x; }
__device__ __forceinline__ size_t chroma_at(const Frame& f, int x, int y) {
    return (size_t)(f.height + y / 2) * f.width + x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
overlay(const Frame* frames, const Mark* marks, const byte* atlas, const byte* stencils) {
    const Frame f = frames[blockIdx.z];
    const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;
    if (left >= f.width || top >= f.height) return;  // the grid is as large as the largest frame

    __shared__ Mark hits[THREADS];
    __shared__ int votes[WARPS];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int x = left + 2 * lane;
    Patch patches[PATCHES] = {};
    bool loaded = false;

    for (int base = f.first; base < f.last || !loaded; base += THREADS) {  // at least once
        const bool mine = base + thread < f.last && touches(marks[base + thread], left, top);
        const unsigned vote = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) votes[warp] = __popc(vote);
        __syncthreads();
        int place = __popc(vote & ((1u << lane) - 1)), count = 0;
        for (int w = 0; w < WARPS; w++) {
            place += w < warp ? votes[w] : 0;
            count += votes[w];
        }
        if (mine) hits[place] = marks[base + thread];
        __syncthreads();

        const bool over = base + THREADS >= f.last;
        if (!loaded && (count > 0 || (over && f.from != f.to))) {
            loaded = true;
#pragma unroll
            for (int i = 0; i < PATCHES; i++) {
                const int y = top + 2 * (warp + WARPS * i);
                if (x >= f.width || y >= f.height) continue;
                const uchar2 upper = *(const uchar2*)(f.from + luma_at(f, x, y));
                const uchar2 lower = *(const uchar2*)(f.from + luma_at(f, x, y + 1));
                const uchar2 chroma = *(const uchar2*)(f.from + chroma_at(f, x, y));
                patches[i] = {{upper.x, upper.y, lower.x, lower.y}, chroma.x, chroma.y};
            }
        }
        if (!loaded && over) return;  // in place, and nothing to draw here
        for (int k = 0; k < count; k++) {
            const Mark m = hits[k];
#pragma unroll
            for (int i = 0; i < PATCHES; i++) put(patches[i], m, x, top + 2 * (warp + WARPS * i), atlas, stencils);
        }
        __syncthreads();  // the next marks overwrite `hits` and `votes`
    }

#pragma unroll
    for (int i = 0; i < PATCHES; i++) {
        const int y = top + 2 * (warp + WARPS * i);
        if (x >= f.width || y >= f.height) continue;
        const Patch& p = patches[i];
        *(uchar2*)(f.to + luma_at(f, x, y)) = make_uchar2(p.y[0], p.y[1]);
        *(uchar2*)(f.to + luma_at(f, x, y + 1)) = make_uchar2(p.y[2], p.y[3]);
        *(uchar2*)(f.to + chroma_at(f, x, y)) = make_uchar2(p.cb, p.cr);
    }
}
