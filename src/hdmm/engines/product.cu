// out = xᵀAᵀ for 64-bit integers, modulo 2⁶⁴: one attribute of a Kronecker product. No floating point is used, so that
// the numbers depend on no library's choice of algorithm.
//
// A is given transposed, n × padded, with columns of 0 up to a multiple of ROWS; x is n × length, and out length × m.
// A thread makes one row of out, ROWS entries at a time.

typedef unsigned long long u64;

#define ROWS 16

extern "C" __global__ void product(const u64* A, const u64* x, u64* out, int m, int padded, int n, u64 length) {
    const u64 column = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= length) return;
    for (int first = 0; first < m; first += ROWS) {
        u64 sums[ROWS] = {0};
        for (int k = 0; k < n; k++) {
            const u64 value = x[(u64)k * length + column];
            const u64* row = A + (u64)k * padded + first;
#pragma unroll
            for (int i = 0; i < ROWS; i++) sums[i] += value * row[i];
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (first + i < m) out[column * m + first + i] = sums[i];
    }
}
