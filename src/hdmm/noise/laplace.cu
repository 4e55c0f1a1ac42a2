// Draws of discrete Laplace noise as numbered.py defines them, one block of ChaCha20 per draw. Integers only.
//
// A thread block makes PER draws. Those whose lowest digits may have to be replaced (1 in 23 to 1 in 46) wait in shared
// memory and are finished together, so that the other threads of their warps do not wait for them. Draws in which a
// coin ties on 32 digits are listed, and decided by the processor.

#define DIGITS 11
#define BEYOND 11
#define SIGN 13
#define HIGH 14

// D if it is at most D', else the number in its place: the 2m coins of the lowest digits, from lanes 1 on.
__device__ u64 lowest(const u32* key, const u32* low, int m, u64 number, u32 stream, u64 D, bool* tie) {
    u64 found[2] = {0, 0};
    u32 w[16];
    for (int base = 0; base < 2 * m; base += 16) {
        chacha20(w, key, number, 1 + base / 16, stream);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int coin = base + i;
            if (coin < 2 * m) {
                const int k = coin < m ? coin : coin - m;
                const u64 digit = (u64)(w[i] < low[k]) << k;
                if (coin < m) found[0] |= digit; else found[1] |= digit;
                *tie |= w[i] == low[k];
            }
        }
    }
    return D <= found[0] ? D : found[1];
}

// secrets: 8 words of key, 14 of the coins of every draw, m of those of the lowest digits.
extern "C" __global__ void laplace(const u32* secrets, int m, u32 stream, u64 start, u64 size, long long* out,
                                   u64* ties, u32* tied, u32 room) {
    __shared__ u32 held[8 + HIGH + 64];
    __shared__ unsigned short queue[PER];
    __shared__ u32 waiting;
    for (int i = threadIdx.x; i < 8 + HIGH + m; i += blockDim.x) held[i] = secrets[i];
    if (threadIdx.x == 0) waiting = 0;
    __syncthreads();
    const u32 *key = held, *high = held + 8, *low = held + 8 + HIGH;
    const u64 base = (u64)blockIdx.x * PER, mask = ((u64)1 << m) - 1;
    for (u32 j = threadIdx.x; j < PER && base + j < size; j += blockDim.x) {
        u32 w[16], heads = 0;
        bool tie = false;
        chacha20(w, key, start + base + j, 0, stream);
#pragma unroll
        for (int c = 0; c < HIGH; c++) {
            heads |= (u32)(w[c] < high[c]) << c;
            tie |= w[c] == high[c];
        }
        const u64 D = ((u64)w[15] << 32 | w[14]) & mask;
        const long long G = (long long)((u64)(heads & ((1u << DIGITS) - 1)) << m | D);
        out[base + j] = G ^ -(long long)(heads >> SIGN & 1);
        if (m > 0 && !(heads >> BEYOND & 1)) queue[atomicAdd(&waiting, 1u)] = (unsigned short)j;
        if (tie) {
            const u32 at = atomicAdd(tied, 1u);
            if (at < room) ties[at] = base + j;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < waiting; i += blockDim.x) {
        const u64 j = base + queue[i];
        const long long sign = out[j] >> 63;
        const u64 G = (u64)(out[j] ^ sign);
        bool tie = false;
        const u64 D = lowest(key, low, m, start + j, stream, G & mask, &tie);
        out[j] = (long long)((G & ~mask) | D) ^ sign;
        if (tie) {
            const u32 at = atomicAdd(tied, 1u);
            if (at < room) ties[at] = j;
        }
    }
}
