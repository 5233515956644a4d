// SPDX-License-Identifier: Apache-2.0
// What happens to workers, nodes and the operator's leader.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/sim/recovery_parts.h"

namespace weir::sim {
namespace {

constexpr double kNotReady = 40;   // s, until the control plane gives a node up
constexpr double kNodeAway = 120;  // s, until a machine is back

}  // namespace

const char* name(Blow blow) {
  switch (blow) {
    case Blow::kProcessEnds:
      return "process ends";
    case Blow::kPodDeleted:
      return "pod is deleted at once";
    case Blow::kPodTold:
      return "pod is told to end";
    case Blow::kStands:
      return "process stands still";
    case Blow::kNodeStands:
      return "node stands still";
    case Blow::kCutOff:
      return "is cut off";
    case Blow::kCutFromOperator:
      return "is cut off from the operator";
    case Blow::kLeaderEnds:
      return "leader of the operator ends";
  }
  return "?";
}

void RecoveryWorld::strike(Blow blow) {
  if (blow == Blow::kLeaderEnds) {
    const double away = 1 + 19 * random_.uniform();
    note("the operator is away for " + std::to_string(away) + " s");
    operator_up_ = false;
    operator_back_ = std::max(operator_back_, agenda_.now() + away);
    return agenda_.at(operator_back_, [this] { lead_again(); });
  }
  std::vector<Worker*> there;
  for (const auto& [uid, worker] : workers_) {
    if (awake(*worker) && !worker->cut && !worker->told_to_end) there.push_back(worker.get());
  }
  if (there.empty()) return;
  Worker& worker = *there[random_.below(there.size())];
  const std::string uid = worker.uid;
  note(worker.pod + " (" + uid + ")" + (worker.coordinator ? ", which coordinates," : "") + " " +
       name(blow));
  const auto for_a_while = [&](double most, bool Worker::* flag) {
    worker.*flag = true;
    const int life = worker.life;
    agenda_.after(0.5 + most * random_.uniform(), [this, uid, flag, life] {
      Worker* const same = find(uid);
      const bool ended = flag == &Worker::stopped && (same == nullptr || same->life != life);
      const bool away = same != nullptr && node_gone_.contains(same->node);
      if (same == nullptr || ended || (away && flag != &Worker::cut_from_operator)) return;
      same->*flag = false;
      wake(*same);
    });
  };
  switch (blow) {
    case Blow::kProcessEnds:
      end_process(worker);
      return agenda_.after(0.2 + 0.8 * random_.uniform(), [this, uid] { kubelet(uid, 137); });
    case Blow::kPodDeleted:
      return remove_pod(uid);
    case Blow::kPodTold: {
      api::Pod& pod = world_.pod(worker.pod);
      reconcile::test::disrupt(pod, world_.now);
      pod.meta.deletion_grace_seconds = static_cast<int>(kGrace);
      pod.meta.deleting = world_.now + std::chrono::seconds(static_cast<int>(kGrace));
      return settle();
    }
    case Blow::kStands:
      return for_a_while(12, &Worker::stopped);
    case Blow::kCutOff:
      return for_a_while(15, &Worker::cut);
    case Blow::kCutFromOperator:
      return for_a_while(40, &Worker::cut_from_operator);
    case Blow::kNodeStands:
      worker.stopped = worker.cut = true;
      node_gone_.insert(worker.node);
      agenda_.after(kNotReady, [this, node = worker.node] { node_ready(node, false); });
      return agenda_.after(kNodeAway, [this, uid, node = worker.node] {
        node_gone_.erase(node);
        node_ready(node, true);
        Worker* const same = find(uid);
        if (same == nullptr) return;
        end_process(*same);
        same->cut = false;
        kubelet(uid, 137);
      });
    case Blow::kLeaderEnds:
      return;
  }
}

void RecoveryWorld::node_ready(const std::string& node, bool ready) {
  if (!ready && !node_gone_.contains(node)) return;
  for (auto& one : world_.nodes) {
    if (one.meta.name != node || one.ready == ready) continue;
    one.ready = ready;
    one.not_ready_since.reset();
    if (!ready) one.not_ready_since = world_.now;
  }
  for (auto& pod : world_.pods) {
    if (pod.node == node && !ready) pod.ready = false;
  }
  settle();
}

}  // namespace weir::sim
