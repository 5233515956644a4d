// SPDX-License-Identifier: Apache-2.0
// The operator's control API, played for real workers: one plan, made when all have registered, and
// the wishes of users. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/http/server.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::test {

class PlayedOperator {
 public:
  // plan: without ranks. Stage s of replica r is worker r x stages + s.
  explicit PlayedOperator(schedule::Plan plan);

  std::string url() const;
  // Answers each report of this step or a later one with this wish.
  void want_trace(const protocol::TraceWanted& wanted, std::int64_t from_step);
  // The parts of a trace that came as POST /trace with this id, joined; nothing until all are here.
  std::optional<std::string> trace(const std::string& id) const;
  std::vector<protocol::Member> members() const;  // that have registered last
  // The newest dump that came.
  std::optional<protocol::FlightDump> flight() const;

 private:
  http::Response answer(const http::Request& request);
  void make_plan(const std::vector<protocol::Member>& members);

  mutable std::mutex mutex_;  // guards all below but server_
  schedule::Plan plan_;
  bool planned_ = false;
  std::vector<protocol::Member> members_;
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
