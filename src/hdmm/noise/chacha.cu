// A block of ChaCha20 at the positions of chacha.py. The kernels of laplace.cu and gaussian.cu come after it.

typedef unsigned int u32;
typedef unsigned long long u64;

#define PER 4096  // draws of a thread block

__device__ __forceinline__ u32 turned(u32 x, int by) { return x << by | x >> (32 - by); }

#define QUARTER(a, b, c, d)          \
    a += b; d = turned(d ^ a, 16);   \
    c += d; b = turned(b ^ c, 12);   \
    a += b; d = turned(d ^ a, 8);    \
    c += d; b = turned(b ^ c, 7);

__device__ __forceinline__ void chacha20(u32 w[16], const u32* key, u64 number, u32 lane, u32 stream) {
    const u32 start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, key[0], key[1], key[2], key[3],
                           key[4], key[5], key[6], key[7], (u32)number, (u32)(number >> 32), lane, stream};
#pragma unroll
    for (int i = 0; i < 16; i++) w[i] = start[i];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        QUARTER(w[0], w[4], w[8], w[12])
        QUARTER(w[1], w[5], w[9], w[13])
        QUARTER(w[2], w[6], w[10], w[14])
        QUARTER(w[3], w[7], w[11], w[15])
        QUARTER(w[0], w[5], w[10], w[15])
        QUARTER(w[1], w[6], w[11], w[12])
        QUARTER(w[2], w[7], w[8], w[13])
        QUARTER(w[3], w[4], w[9], w[14])
    }
#pragma unroll
    for (int i = 0; i < 16; i++) w[i] += start[i];
}
