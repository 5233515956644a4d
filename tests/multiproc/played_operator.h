// SPDX-License-Identifier: Apache-2.0
// The operator's control API, played for real workers: one plan, made when all have registered, the
// wishes of users, and the coordinator that the test names. A worker's token is its pod's uid.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/http/server.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::test {

class PlayedOperator {
 public:
  // plan: without ranks. Stage s of replica r is worker r x stages + s.
  explicit PlayedOperator(schedule::Plan plan);
  // Without a plan until use(); listens on that address.
  explicit PlayedOperator(const std::string& address);

  std::string url() const;
  // A plan with ranks: the first one, or a newer one.
  void use(const schedule::Plan& plan);
  // This worker coordinates from now on; before the first call it is the one of index 0.
  void name(const protocol::CoordinatorPlace& place);
  // Number of the workers that have said that they do not hear the coordinator of this term.
  std::size_t claims(std::int64_t term) const;
  // Answers each report of this step or a later one with this wish.
  void want_trace(const protocol::TraceWanted& wanted, std::int64_t from_step);
  // The parts of a trace that came as POST /trace with this id, joined; nothing until all are here.
  std::optional<std::string> trace(const std::string& id) const;
  protocol::Register registered() const;  // the last time
  // The newest report, if it has this sequence number or a later one.
  std::optional<protocol::Report> report(std::int64_t sequence) const;
  // The newest dump that came.
  std::optional<protocol::FlightDump> flight() const;

 private:
  void serve(const std::string& address);
  // With the lock held. 304: when the next plan comes, or another coordinator.
  http::Response answer(const http::Request& request);
  http::Response join(const std::string& body);
  http::Response plan_answer() const;
  http::Response misdirected() const;
  void make_plan(const std::vector<protocol::Member>& members);

  std::string address_;
  mutable std::mutex mutex_;  // guards all below but server_
  schedule::Plan plan_;
  bool planned_ = false, waits_ = false;  // waits_: for use()
  protocol::Register registered_;
  std::optional<protocol::Report> report_;
  std::optional<protocol::CoordinatorPlace> named_;
  std::set<std::pair<std::int64_t, std::string>> claims_;  // term, pod uid
  std::int64_t from_step_ = 0;
  std::optional<protocol::TraceWanted> wanted_;
  std::optional<protocol::FlightDump> flight_;
  std::string id_;
  std::size_t parts_ = 1;
  std::vector<std::string> octets_;
  std::vector<http::Responder> polls_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace weir::test
