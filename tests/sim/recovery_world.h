// SPDX-License-Identifier: Apache-2.0
// A job that loses its workers, in virtual time: the real coordinator (worker/coordinator) in
// whichever worker has the role, the real hub of the control API and reconcile, ranks that follow
// both sides' rules (played_rank.h), and a cluster in which processes end, stand still and are cut
// off. Sessions, requests and pods take time, which comes from the seed like everything else.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/control/hub.h"
#include "tests/operator/controller/reconcile/world.h"
#include "tests/sim/agenda.h"
#include "tests/sim/played_rank.h"
#include "worker/base/random.h"
#include "worker/control/link.h"
#include "worker/coordinator/coordinator.h"

namespace weir::sim {

struct RecoveryCase {
  int stages = 2, replicas = 2, spares = 0;
  bool in_place = true;  // kubelets restart containers
};

enum class Blow : unsigned char {
  kProcessEnds,
  kPodDeleted,       // by force
  kPodTold,          // to end, with a grace
  kStands,           // the process is stopped for a while
  kNodeStands,       // and its kubelet: nobody hears of it again
  kCutOff,           // from all others, for a while
  kCutFromOperator,  // for a while
  kLeaderEnds,       // of the operator
};
const char* name(Blow blow);
constexpr int kBlows = 8;

class RecoveryWorld final : public RankNetwork {
 public:
  RecoveryWorld(const RecoveryCase& one, std::uint64_t seed);
  ~RecoveryWorld() override;

  void run(double seconds) { agenda_.run_until(agenda_.now() + seconds); }
  // Returns whether all ranks of the plan train within that time, and nobody is cut off any more.
  bool recovers(double limit);
  // Something happens to a worker of the job, drawn by chance.
  void strike(Blow blow);

  const std::vector<std::string>& wrong() const { return wrong_; }
  std::string history() const;  // what happened, a line each
  std::string state() const;
  std::int64_t steps() const { return highest_; }
  std::int64_t repeated() const { return repeated_; }
  // Steps made again though another replica was whole all the time, and nobody was cut off or stood
  // still: each side of a split may take the other one for lost.
  std::int64_t needlessly_repeated() const { return needlessly_; }
  // Steps of ranks that were cut off, while others had begun a later history.
  std::int64_t in_vain() const { return in_vain_; }
  std::int64_t terms() const {
    return holder_of_term_.empty() ? 0 : holder_of_term_.rbegin()->first;
  }

 private:
  class Server;
  class Source;
  class AgendaClock;
  struct Session;
  struct Worker;

  // RankNetwork
  PlayedRank* running(const std::string& pod_uid) override;
  PlayedRank* at_ip(const std::string& ip) override;
  bool reach(const PlayedRank& one, const PlayedRank& other) const override;
  void tell(const PlayedRank& from, const protocol::Message& message) override;
  double now() const override { return agenda_.now(); }
  bool chance(int one_in) override { return random_.below(static_cast<unsigned>(one_in)) == 0; }
  void begins(const PlayedRank& rank) override;
  void ends_step(const PlayedRank& rank) override;
  void fail(const std::string& what) override;

  void note(const std::string& what);
  double soon() { return 0.0005 + 0.004 * random_.uniform(); }  // s, of a message
  Worker* find(const std::string& uid);
  const Worker* find(const std::string& uid) const;
  static bool awake(const Worker& worker);
  bool all_undisturbed() const;  // no worker stands still or is cut off
  bool reach(const Worker& one, const Worker& other) const;

  // Cluster.
  void run_pods();
  void start_pod(const std::string& uid);
  void start_process(Worker& worker);
  void end_process(Worker& worker);
  void kubelet(const std::string& uid, int exit_code);
  void remove_pod(const std::string& uid);
  void node_ready(const std::string& node, bool ready);
  void wake(Worker& worker);  // it goes on after a pause
  void tick(Worker& worker);
  void tick();
  bool has_whole_replica();

  // Sessions of port 7070.
  void connect(Worker& worker, const Worker& server);
  void push(Session& session, bool to_server, const protocol::Message& message);
  void pump(std::uint64_t id, bool to_server);
  void give_to_rank(Worker& worker, const protocol::Message& message);
  void look_after_sessions(Worker& coordinator);

  // The agent of a worker, and the role of the coordinator.
  void follow(Worker& worker);
  void ask(Worker& worker);
  void answered(Worker& worker, const std::optional<protocol::CoordinatorPlace>& place);
  void coordinate(Worker& worker, const std::string& lost_pod_uid);
  Worker* place_of_coordinator(const Worker& worker);

  // The operator.
  // A request of that process, which may get lost.
  void call(const Worker& worker, std::function<void(Worker&)> work);
  cache::JobView view() const;
  api::Pod* pod_of(const std::string& uid);  // null: it is gone
  // What POST join answers; nothing is 503.
  std::optional<protocol::CoordinatorPlace> take_join(const Worker& worker,
                                                      std::optional<std::int64_t> lost_term);
  void pass_soon();
  void settle();
  void lead_again();
  void check_terms();

  const RecoveryCase case_;
  Random random_;
  Agenda agenda_;
  std::unique_ptr<AgendaClock> clock_;
  std::unique_ptr<control_server::Hub> hub_;
  reconcile::test::World world_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;  // by pod uid
  std::map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::uint64_t last_session_ = 0, wake_ = 0;
  std::set<std::string> scheduled_;  // pod uids
  std::set<std::string> node_gone_;  // those that stand still
  bool operator_up_ = true, passing_ = false, settling_ = false;
  double operator_back_ = 0;
  int last_ip_ = 0;
  std::map<std::int64_t, std::string> holder_of_term_;

  // What the ranks did.
  std::int64_t ends_ = 0, highest_ = 0, highest_history_ = 0, repeated_ = 0, needlessly_ = 0,
               in_vain_ = 0;
  struct Ended {
    std::int64_t history = 0;
    std::vector<std::pair<std::string, int>> by;  // pod uid and which process there
  };
  std::map<std::int64_t, Ended> ended_;  // by step
  double not_whole_ = 0;                 // when no replica was whole the last time
  double disturbed_ = 0;  // when somebody stood still, or could not reach others, the last time
  std::vector<std::string> wrong_, log_;
};

}  // namespace weir::sim
