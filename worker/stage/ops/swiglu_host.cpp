// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/swiglu.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace {

Vec sigmoid(Vec x) {
  return broadcast(1.0F) / (broadcast(1.0F) + exp_of(-x));
}

struct Gradient {
  Vec gate, up;
};
Gradient gradient(Vec gate, Vec up, Vec dy) {
  const Vec s = sigmoid(gate);
  const Vec slope = s * (broadcast(1.0F) + gate * (broadcast(1.0F) - s));
  return {dy * up * slope, dy * gate * s};
}

void forward_row(Index channels, const float* gate, float* y) {
  const float* up = gate + channels;
  Index i = 0;
  for (; i + kLanes <= channels; i += kLanes) {
    const Vec g = load(gate + i);
    store(y + i, g * sigmoid(g) * load(up + i));
  }
  const Index rest = channels - i;
  const Vec g = load_some(gate + i, rest, 0.0F);
  store_some(y + i, g * sigmoid(g) * load_some(up + i, rest, 0.0F), rest);
}

void backward_row(Index channels, const float* gate, const float* dy, float* dgate) {
  const float* up = gate + channels;
  float* dup = dgate + channels;
  Index i = 0;
  for (; i + kLanes <= channels; i += kLanes) {
    const Gradient one = gradient(load(gate + i), load(up + i), load(dy + i));
    store(dgate + i, one.gate);
    store(dup + i, one.up);
  }
  const Index rest = channels - i;
  const Gradient last = gradient(load_some(gate + i, rest, 0.0F), load_some(up + i, rest, 0.0F),
                                 load_some(dy + i, rest, 0.0F));
  store_some(dgate + i, last.gate, rest);
  store_some(dup + i, last.up, rest);
}

// Calls f(row) for each row.
template <class F>
void for_rows(Team& team, const SwigluShape& shape, F f) {
  team.run(shape.rows, least_rows(shape.channels), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) f(r);
  });
}

}  // namespace

void run_on_host(const SwigluForward& op, const Host& host) {
  const std::size_t count = product(op.shape.rows, op.shape.channels);
  const Index channels = op.shape.channels;
  const In gate_up(op.gate_up, 2 * count, host);
  Out y(op.y, count, host);
  for_rows(host.team, op.shape,
           [&](Index r) { forward_row(channels, gate_up + 2 * r * channels, y + r * channels); });
}

void run_on_host(const SwigluBackward& op, const Host& host) {
  const std::size_t count = product(op.shape.rows, op.shape.channels);
  const Index channels = op.shape.channels;
  const In gate_up(op.gate_up, 2 * count, host), dy(op.dy, count, host);
  Out dgate_up(op.dgate_up, 2 * count, host);
  for_rows(host.team, op.shape, [&](Index r) {
    backward_row(channels, gate_up + 2 * r * channels, dy + r * channels,
                 dgate_up + 2 * r * channels);
  });
}

}  // namespace weir::stage::ops
