// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/memory.h"

namespace weir::stage::ops {

void run_on_host(const Zero& op, Precision /*precision*/) {
  std::fill_n(op.values, op.count, 0.0F);
}

void run_on_host(const Copy& op, Precision /*precision*/) {
  if (op.bytes > 0) std::memcpy(op.to, op.from, op.bytes);
}

void run_on_host(const RoundValues& op, Precision precision) {
  std::copy_n(op.from, op.count, static_cast<float*>(Out(op.to, op.count, precision)));
}

}  // namespace weir::stage::ops
