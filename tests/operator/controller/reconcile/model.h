// SPDX-License-Identifier: Apache-2.0
// Random histories of one job in the model world: what users, kubelets, nodes and the operator's
// own crashes can do to it, from a seed. Checks each pass against what must always hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/operator/controller/reconcile/world.h"
#include "worker/base/random.h"

namespace weir::reconcile::test {

enum class Happening : unsigned char {
  kKubeletsRun,
  kRegister,
  kApply,
  kStep,
  kCrash,     // of a worker, code in `value`
  kDisrupt,   // DisruptionTarget on a running pod
  kDelete,    // by somebody, with grace
  kVanish,    // the pod's object is gone at once
  kEnd,       // pods that are being deleted end
  kNodeLost,  // of a pod
  kNodesBack,
  kSuspend,
  kResume,
  kFinish,  // the coordinator ends with 0
  // Pods that the kubelet ends without a time: an init container fails, the kubelet rejects the
  // pod, the pod exceeds its own limits, its container is not found again after a reboot.
  kInitFails,
  kReject,
  kOutgrow,
  kForget,
  kFinishUnseen,  // likewise, and all pods are gone before the operator looks
  kEditSchedule,
  kScale,      // of the job, to 1 + `slot` replicas
  kEditWrong,  // to something that is not implemented
  kEditBack,
  kEditImage,
  kTime,  // `value` seconds
  kNewLeader,
};
struct Event {
  Happening what = Happening::kTime;
  int slot = 0, value = 0;
};

std::string text(const Event& event);

// The requests that the API server refuses, and its message.
enum class Refuses : unsigned char { kCreates, kPatches, kAll };
constexpr auto kRefusal = "admission webhook \"no.example.com\" denied the request: not today";

// short_waits: no deadline runs out, so that what a leader forgets makes no difference.
std::vector<Event> random_history(std::uint64_t seed, int length, bool short_waits);

class Model {
 public:
  explicit Model(std::uint64_t seed);

  World world;
  std::uint64_t seed = 0;
  bool crashes = false;   // the operator dies after a random action now and then
  bool shuffles = false;  // lists come in another order in every pass
  int failures = 0;       // happenings that may count as a restart
  bool sidecars = false;  // pods have other containers, which go on when the trainer has ended
  bool done = false;      // all steps are done

  void happen(const Event& event);
  // From now on, for so long.
  void refuse(Refuses what, std::chrono::seconds span);
  // Passes until nothing changes at this time; false after `most` passes.
  bool settle(int most = 12);
  std::string text() const;  // where the job is, in one line
  // Everything goes well from now on, until the job trains or has ended.
  void recover();

 private:
  void end(const std::string& pod, int exit_code);
  void end_without_time(Happening what, api::Pod& pod);
  bool one_pass();
  void check(const Outcome& outcome) const;
  void check_plan(const schedule::Plan& plan) const;
  void check_deletion(const DeletePod& action) const;
  bool trains_on(const std::string& uid) const;
  api::Pod* newest(int worker);
  int worker_of(const Event& event) const;
  void new_leader();

  Random random_;
};

}  // namespace weir::reconcile::test
