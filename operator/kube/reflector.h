// SPDX-License-Identifier: Apache-2.0
// Keeps a Sink equal to one resource of one namespace (or of all) by LIST and WATCH; one thread
// each. What to do when is in reflector_state.h.
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

// Calls come one at a time, from the reflector's thread or the transport's; they must not block and
// not use a Client.
struct Sink {
  // The whole content, as JSON texts, at this version.
  std::function<void(const std::vector<std::string>& items, const std::string& version)> replace;
  // Number of differences to what the sink holds; changes nothing.
  std::function<int(const std::vector<std::string>& items)> compare;
  // ADDED, MODIFIED, DELETED; BOOKMARK has a version only.
  std::function<void(const api::WatchEvent& event)> event;
  std::function<void(bool connected)> connected;
};

struct ReflectorOptions {
  Resource resource;
  std::string namespace_name;  // "" = all
  std::string label_selector;  // "" = all objects
  // May be forbidden. Before the first list that counts as empty. Later it says nothing about the
  // objects (a role that was spoiled, an API server that has not read its roles yet): what is known
  // is kept, and asked for again with the usual back-off.
  bool optional = false;
  bool may_be_absent = false;  // may not be installed (404): counts as empty at any time
  std::chrono::seconds forbidden_retry = std::chrono::minutes(5);  // of what counts as empty
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
  bool listed_ = false;   // once at least
  bool refused_ = false;  // an optional resource, after it was listed; by the last request
  bool sleeps_ = false;   // until forbidden_retry is over: it counts as empty
};

}  // namespace weir::kube
