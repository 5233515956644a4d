// SPDX-License-Identifier: Apache-2.0
// Keeps a Sink equal to one resource of one namespace (or of all) by LIST and WATCH. Each reflector
// has its own thread. reflector_state.h decides when to list and when to watch.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "operator/api/decode.h"
#include "operator/kube/client.h"
#include "operator/kube/reflector_state.h"
#include "worker/base/clock.h"

namespace weir::kube {

// Calls come one at a time, from the reflector's thread or the transport's. They must not block and
// not use a Client.
struct Sink {
  // Replaces the content by these objects (JSON) of this version.
  std::function<void(const std::vector<std::string>& items, const std::string& version)> replace;
  // Returns the number of differences to the content, and changes nothing.
  std::function<int(const std::vector<std::string>& items)> compare;
  // Applies ADDED, MODIFIED, DELETED, or BOOKMARK, which has a version only.
  std::function<void(const api::WatchEvent& event)> event;
  std::function<void(bool connected)> connected;
};

struct ReflectorOptions {
  Resource resource;
  std::string namespace_name;  // "" = all
  std::string label_selector;  // "" = all objects
  // The resource may be forbidden. A 403 before the first list counts as empty. A later 403 says
  // nothing about the objects (somebody changed the role, or the API server has not read its roles
  // yet), so the content is kept and the request repeated with the usual back-off.
  bool optional = false;
  bool may_be_absent = false;  // may not be installed; a 404 counts as empty at any time
  // Time to the next request for a resource that counts as empty.
  std::chrono::seconds forbidden_retry = std::chrono::minutes(5);
  std::uint64_t seed = 1;
  std::chrono::seconds verify_every = kVerifyEvery;
  std::function<void(const char* reason)> on_relist;  // for metrics
  std::function<void(int differences)> on_drift;
};

class Reflector {
 public:
  Reflector(Client& client, Clock& clock, ReflectorOptions options, Sink sink);
  void run(std::stop_token stop);

 private:
  void list(ReflectorState::Do how);
  void verify();
  void watch(std::stop_token stop);
  bool counts_as_empty(const ApiError& error);
  bool keeps_what_it_knows(const ApiError& error);
  ApiResult<api::ListPage> list_pages(const std::string& query, int page_size);
  std::string selector_query() const;

  Client& client_;
  Clock& clock_;
  const ReflectorOptions options_;
  const Sink sink_;
  ReflectorState state_;
  bool listed_ = false;   // at least once
  bool refused_ = false;  // the last request was forbidden, and its content is kept
  bool sleeps_ = false;   // the resource counts as empty; the next request is after forbidden_retry
};

}  // namespace weir::kube
