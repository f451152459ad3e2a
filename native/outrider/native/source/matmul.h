// Matmuls of float32 rows by weights of any kind, shared among a team. The rows are brought into the form that the
// weights' kinds need: as they are, in bfloat16, or quantized to 8 bits.
//
// Weights are [n, k]; blocks of 64 output features are what threads share, because a thread then reads its weights once
// and as one stream of memory. A step of few rows is limited by that reading, one of many rows by the multiplications.
#pragma once
#include <algorithm>

#include "abi.h"
#include "buffer.h"
#include "linear.h"
#include "quantized.h"
#include "team.h"

namespace outrider {

class Matmul {
 public:
  // out float32 [rows, ldo] becomes x [rows, ldx] by all parts, which stand side by side and end in whole blocks.
  void run(Team& team, const Projection& projection, const float* x, int64_t ldx, int64_t rows, float* out,
           int64_t ldo) {
    prepare(team, projection, x, ldx, rows);
    int64_t blocks = 0;
    for (int32_t p = 0; p < projection.count; p++) blocks += blocks_of(projection.parts[p]);
    team.ranges(blocks, [&](int64_t first, int64_t last) {
      float* to = out;
      for (int32_t p = 0; p < projection.count && last > 0; p++) {
        const Linear& part = projection.parts[p];
        const int64_t own = blocks_of(part);
        if (first < own) multiply(p, part, x, ldx, rows, to, ldo, std::max<int64_t>(first, 0), std::min(last, own));
        first -= own, last -= own, to += part.n;
      }
    });
  }

  static int64_t blocks_of(const Linear& linear) { return round_up(linear.n, BLOCK) / BLOCK; }

 private:
#if defined(__AVX512BF16__)
  static constexpr bool NARROWS = true;  // rows are in bfloat16 where weights are
#else
  static constexpr bool NARROWS = false;
#endif

  // Narrows or quantizes the rows once for all parts, before any thread multiplies.
  void prepare(Team& team, const Projection& projection, const float* x, int64_t ldx, int64_t rows) {
    const int64_t k = projection.parts[0].k;
    bool narrows = false, quants = false;
    for (int32_t p = 0; p < projection.count; p++) {
      narrows |= NARROWS && projection.parts[p].kind == OUTRIDER_BFLOAT16;
      quants |= projection.parts[p].kind == OUTRIDER_QUANTIZED;
    }
    inner_ = round_up(k, 32);
    if (narrows) narrow_.need(rows * inner_);
    if (quants) {
      quantized_ = {quants_.need(rows * k), scales_.need(rows * QuantizedRows::groups(k)), sums_.need(rows * (k / 32)),
                    nullptr, k};
      offsets_.need(projection.count * rows * (k / 16));
    }
    if (!narrows && !quants) return;
    team.ranges(rows, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; r++) {
        if (narrows) narrow(x + r * ldx, narrow_.need(0) + r * inner_, k);
        if (quants) quantize_row(x + r * ldx, quantized_.from(r));
        for (int32_t p = 0; p < projection.count; p++)
          if (projection.parts[p].kind == OUTRIDER_QUANTIZED)
            offset_row(projection.parts[p].format, quantized_rows(p, rows).from(r));
      }
    });
  }

  static void narrow(const float* from, bf16* to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(to + i, load(from + i));
    for (int64_t i = count; i < round_up(count, 32); i++) to[i] = 0;
  }

  QuantizedRows quantized_rows(int32_t part, int64_t rows) {
    QuantizedRows own = quantized_;
    own.offsets = offsets_.need(0) + part * rows * (own.k / 16);
    return own;
  }

  // The output features of some of a part's blocks, for all rows, with their bias.
  void multiply(int32_t p, const Linear& part, const float* x, int64_t ldx, int64_t rows, float* out, int64_t ldo,
                int64_t first, int64_t last) {
    switch (part.kind) {
      case OUTRIDER_FLOAT32:
        linear_blocks(x, ldx, rows, (const float*)part.weight, part.k, out, ldo, first, last);
        break;
      case OUTRIDER_FLOAT16: linear_blocks(x, ldx, rows, (const f16*)part.weight, part.k, out, ldo, first, last); break;
      case OUTRIDER_BFLOAT16: columns_bf16(part, x, ldx, rows, out, ldo, first, last); break;
      case OUTRIDER_QUANTIZED: {
        const int64_t strips = BLOCK / OUTPUTS, all = round_up(part.n, OUTPUTS) / OUTPUTS;
        linear_quantized(quantized_rows(p, rows), rows, part, out, ldo, first * strips, std::min(last * strips, all));
      }
    }
    last = std::min(last * BLOCK, part.n);
    for (int64_t r = 0; part.bias && r < rows; r++)
      for (int64_t i = first * BLOCK; i < last; i++) out[r * ldo + i] += part.bias[i];
  }

  void columns_bf16(const Linear& part, [[maybe_unused]] const float* x, [[maybe_unused]] int64_t ldx, int64_t rows,
                    float* out, int64_t ldo, int64_t first, int64_t last) {
    const bf16* weight = (const bf16*)part.weight;
#if defined(__AMX_BF16__)
    linear_tiles(narrow_.need(0), inner_, rows, weight, part.k, out, ldo, 2 * first, 2 * last);
#elif defined(__AVX512BF16__)
    linear_blocks(narrow_.need(0), inner_, rows, weight, part.k, out, ldo, first, last);
#else
    linear_blocks(x, ldx, rows, weight, part.k, out, ldo, first, last);
#endif
  }

  int64_t inner_ = 0;  // input features of a narrow row, and their filling
  QuantizedRows quantized_{};
  Buffer<bf16> narrow_;
  Buffer<int8_t> quants_;
  Buffer<float> scales_, sums_;
  Buffer<int32_t> offsets_;
};

}  // namespace outrider
