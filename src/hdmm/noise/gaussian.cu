// Draws of rounded Gaussian noise as gaussian.py defines and numbered_gaussian.py numbers them, four per block of
// ChaCha20. Floats only filter acceptance, as there: what is within their margin is left to the processor.
//
// A thread block makes PER draws. Those whose F is rejected (1 in 40) wait in shared memory and are finished together,
// so that the other threads of their warps do not wait for them. Draws in which a tie is possible are listed, and
// decided by the processor. (c + F)/16 and σ have all of their 72 and 128 digits here, so that a tie of rounding is 2⁸
// times as rare as there.

#define MOST 128     // cells
#define ATTEMPTS 5   // in one block of lane 1; what these reject is listed
#define MARGIN (1.0 / 268435456.0)

// The number of ends of cells that are at most u; `tie` if the last of them is u or u − 1.
__device__ __forceinline__ int cell_of(const u32* low, int ends, u32 u, bool* tie) {
    int first = 0, last = ends;
    while (first < last) {
        const int middle = (first + last) / 2;
        if (low[middle] <= u) first = middle + 1; else last = middle;
    }
    *tie |= first > 0 && u - low[first - 1] < 2;
    return first;
}

// Whether V < e^(−F(2c + F)/512); `tie` if that is not certain.
__device__ __forceinline__ bool accepted(int c, u64 f, u32 v, u32 least, bool* tie) {
    if (v < least) return true;
    const double F = (double)f * (1.0 / 18446744073709551616.0);
    const double gap = exp(F * (2.0 * c + F) * (-1.0 / 512)) - v * (1.0 / 4294967296.0);
    *tie |= fabs(gap) <= MARGIN;
    return gap > 0;
}

// ⌊σ(c + F)/16 + ½⌋; `tie` if further digits of F could matter.
__device__ __forceinline__ u64 rounded(u64 s, u64 s_rest, int shift, int c, u64 f, bool* tie) {
    const u64 y = (u64)c << 56 | f >> 8, rest = f << 56;
    const u64 low = y * s, more = __umul64hi(y, s_rest);
    const u64 some = low + more, L = some + __umul64hi(rest, s);
    u64 H = __umul64hi(y, s) + (some < low) + (L < some);
    H += (u64)1 << (shift - 1);
    const u64 mask = ((u64)1 << shift) - 1;
    *tie |= (H & mask) == mask && L >= ~(u64)0 - ((u64)1 << 56) - 8;
    return H >> shift;
}

// secrets: 8 words of key. table: the ends of cells, then the least acceptance of each cell.
extern "C" __global__ void gaussian(const u32* secrets, const u32* table, int ends, u64 s, u64 s_rest, int shift,
                                    u32 stream, u64 start, u64 size, long long* out, u64* ties, u32* tied, u32 room) {
    __shared__ u32 key[8], low[MOST], least[MOST + 1], queue[PER];
    __shared__ u32 waiting;
    for (int i = threadIdx.x; i < 8; i += blockDim.x) key[i] = secrets[i];
    for (int i = threadIdx.x; i < ends; i += blockDim.x) low[i] = table[i];
    for (int i = threadIdx.x; i <= ends; i += blockDim.x) least[i] = table[ends + i];
    if (threadIdx.x == 0) waiting = 0;
    __syncthreads();
    const u64 base = (start / 4) * 4 + (u64)blockIdx.x * PER;  // the number of this thread block's first draw
    for (u32 j = threadIdx.x; j < PER / 4; j += blockDim.x) {
        u32 w[16];
        chacha20(w, key, base / 4 + j, 0, stream);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u64 number = base + 4 * j + k;
            if (number < start || number - start >= size) continue;
            bool tie = false;
            const u64 f = (u64)w[4 * k + 3] << 32 | w[4 * k + 2];
            const int c = cell_of(low, ends, w[4 * k] & 0x7fffffffu, &tie);
            const bool kept = accepted(c, f, w[4 * k + 1], least[c], &tie);
            const long long sign = -(long long)(w[4 * k] >> 31);
            if (kept || tie) {
                out[number - start] = ((long long)rounded(s, s_rest, shift, c, f, &tie) ^ sign) - sign;
            } else {
                out[number - start] = sign;
                queue[atomicAdd(&waiting, 1u)] = (u32)c << 16 | (4 * j + k);
            }
            if (tie) {
                const u32 at = atomicAdd(tied, 1u);
                if (at < room) ties[at] = number - start;
            }
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < waiting; i += blockDim.x) {
        const u64 number = base + (queue[i] & 0xffffu);
        const int c = (int)(queue[i] >> 16);
        const long long sign = out[number - start];
        u32 w[16];
        chacha20(w, key, number, 1, stream);
        bool tie = false, kept = false;
        for (int k = 0; k < ATTEMPTS && !kept && !tie; k++) {
            const u64 f = (u64)w[3 * k + 2] << 32 | w[3 * k + 1];
            kept = accepted(c, f, w[3 * k], 0, &tie);
            if (kept && !tie) out[number - start] = ((long long)rounded(s, s_rest, shift, c, f, &tie) ^ sign) - sign;
        }
        if (tie || !kept) {
            const u32 at = atomicAdd(tied, 1u);
            if (at < room) ties[at] = number - start;
        }
    }
}
