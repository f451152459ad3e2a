// Products of float32 rows by weights of any kind, shared among a team. The rows are brought into the form that the
// weights' kinds need: as they are, in bfloat16, or in codes.
#pragma once
#include <algorithm>

#include "abi.h"
#include "buffer.h"
#include "codes.h"
#include "linear.h"
#include "team.h"

class Multiplier {
 public:
  // out float32 [rows, ldo] becomes x [rows, ldx] by all parts, which stand side by side and end in whole blocks.
  void run(Team& team, const Product& product, const float* x, long ldx, long rows, float* out, long ldo) {
    prepare(team, product, x, ldx, rows);
    long blocks = 0;
    for (int p = 0; p < product.count; p++) blocks += blocks_of(product.parts[p]);
    team.ranges(blocks, [&](long first, long last) {
      float* to = out;
      for (int p = 0; p < product.count && last > 0; p++) {
        const Linear& part = product.parts[p];
        const long own = blocks_of(part);
        if (first < own) multiply(p, part, x, ldx, rows, to, ldo, std::max(first, 0L), std::min(last, own));
        first -= own, last -= own, to += part.n;
      }
    });
  }

  static long blocks_of(const Linear& linear) { return round_up(linear.n, BLOCK) / BLOCK; }

 private:
#if defined(__AVX512BF16__)
  static constexpr bool NARROWS = true;  // rows are in bfloat16 where weights are
#else
  static constexpr bool NARROWS = false;
#endif

  void prepare(Team& team, const Product& product, const float* x, long ldx, long rows) {
    const long k = product.parts[0].k;
    bool narrows = false, codes = false;
    for (int p = 0; p < product.count; p++) {
      narrows |= NARROWS && product.parts[p].kind == OUTRIDER_BFLOAT16;
      codes |= product.parts[p].kind == OUTRIDER_CODES;
    }
    inner_ = round_up(k, 32);
    if (narrows) narrow_.need(rows * inner_);
    if (codes) {
      coded_ = {codes_.need(rows * k), scales_.need(rows * CodedRows::groups(k)), sums_.need(rows * (k / 32)), nullptr, k};
      offsets_.need(product.count * rows * (k / 16));
    }
    if (!narrows && !codes) return;
    team.ranges(rows, [&](long first, long last) {
      for (long r = first; r < last; r++) {
        if (narrows) narrow(x + r * ldx, narrow_.need(0) + r * inner_, k);
        if (codes) code_row(x + r * ldx, coded_.from(r));
        for (int p = 0; p < product.count; p++)
          if (product.parts[p].kind == OUTRIDER_CODES)
            offset_row(product.parts[p].format, coded_rows(p, rows).from(r));
      }
    });
  }

  static void narrow(const float* from, bf16* to, long count) {
    for (long i = 0; i < count; i += LANES) store(to + i, load(from + i));
    for (long i = count; i < round_up(count, 32); i++) to[i] = 0;
  }

  CodedRows coded_rows(int part, long rows) {
    CodedRows own = coded_;
    own.offsets = offsets_.need(0) + part * rows * (own.k / 16);
    return own;
  }

  // The columns of some of a part's blocks, with their bias.
  void multiply(int p, const Linear& part, const float* x, long ldx, long rows, float* out, long ldo, long first, long last) {
    switch (part.kind) {
      case OUTRIDER_FLOAT32: linear_blocks(x, ldx, rows, (const float*)part.weight, part.k, out, ldo, first, last); break;
      case OUTRIDER_FLOAT16: linear_blocks(x, ldx, rows, (const f16*)part.weight, part.k, out, ldo, first, last); break;
      case OUTRIDER_BFLOAT16: multiply_bf16(part, x, ldx, rows, out, ldo, first, last); break;
      case OUTRIDER_CODES: {
        const long strips = BLOCK / OUTPUTS, all = round_up(part.n, OUTPUTS) / OUTPUTS;
        linear_codes(coded_rows(p, rows), rows, part, out, ldo, first * strips, std::min(last * strips, all));
      }
    }
    last = std::min(last * BLOCK, part.n);
    for (long r = 0; part.bias && r < rows; r++)
      for (long i = first * BLOCK; i < last; i++) out[r * ldo + i] += part.bias[i];
  }

  void multiply_bf16(const Linear& part, const float* x, long ldx, long rows, float* out, long ldo, long first, long last) {
    const bf16* weight = (const bf16*)part.weight;
#if defined(__AMX_BF16__)
    linear_tiles(narrow_.need(0), inner_, rows, weight, part.k, out, ldo, 2 * first, 2 * last);
#elif defined(__AVX512BF16__)
    linear_blocks(narrow_.need(0), inner_, rows, weight, part.k, out, ldo, first, last);
#else
    linear_blocks(x, ldx, rows, weight, part.k, out, ldo, first, last);
#endif
  }

  long inner_ = 0;  // input features of a narrow row, and their filling
  CodedRows coded_{};
  Buffer<bf16> narrow_;
  Buffer<int8_t> codes_;
  Buffer<float> scales_, sums_;
  Buffer<int32_t> offsets_;
};
