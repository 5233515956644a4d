// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/reflector.h"

#include <utility>

#include "operator/kube/status_error.h"
#include "worker/base/log.h"
#include "worker/http/server.h"

namespace weir::kube {
namespace {

constexpr int kPageSize = 500;

}  // namespace

Reflector::Reflector(Client& client, Clock& clock, ReflectorOptions options, Sink sink)
    : client_(client),
      clock_(clock),
      options_(std::move(options)),
      sink_(std::move(sink)),
      state_(options_.seed, options_.verify_every) {}

void Reflector::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (const auto wait = state_.wait(); wait.count() > 0) {
      if (!clock_.sleep_until(clock_.now() + wait, stop)) return;
    }
    switch (const auto what = state_.next(clock_.now())) {
      case ReflectorState::Do::kList:
      case ReflectorState::Do::kListPaged:
      case ReflectorState::Do::kListWhole:
        list(what);
        break;
      case ReflectorState::Do::kWatch:
        watch(stop);
        break;
      case ReflectorState::Do::kVerify:
        verify();
        break;
    }
    if (sleeps_) {
      if (!clock_.sleep_until(clock_.now() + options_.forbidden_retry, stop)) return;
    }
  }
}

std::string Reflector::selector_query() const {
  if (options_.label_selector.empty()) return "";
  return "&labelSelector=" + http::percent_encoded(options_.label_selector);
}

// Reads all pages into one; page_size 0 = no pages.
ApiResult<api::ListPage> Reflector::list_pages(const std::string& query, int page_size) {
  api::ListPage all;
  std::string token;
  do {
    std::string whole = "?" + query + selector_query();
    if (page_size > 0) whole += "&limit=" + std::to_string(page_size);
    if (!token.empty()) whole += "&continue=" + http::percent_encoded(token);
    auto text = client_.list(options_.resource, options_.namespace_name, whole);
    if (!text) return text.error();
    auto page = api::decode_list(*text);
    if (!page) return transport_error(page.error());
    token = std::exchange(page->continue_token, "");
    all.resource_version = page->resource_version;
    for (std::string& item : page->items) all.items.push_back(std::move(item));
  } while (!token.empty());
  return all;
}

bool Reflector::counts_as_empty(const ApiError& error) {
  const bool forbidden = options_.optional && error.code == Code::kForbidden && !listed_;
  const bool absent = options_.may_be_absent && error.code == Code::kNotFound;
  if (!forbidden && !absent) return false;
  log_info("kube", absent ? "not installed, counts as empty" : "not permitted, counts as empty",
           {{"resource", options_.resource.plural}, {"namespace", options_.namespace_name}});
  sink_.replace({}, "");
  sink_.connected(true);
  state_.forget();
  sleeps_ = true;
  return true;
}

bool Reflector::keeps_what_it_knows(const ApiError& error) {
  const bool kept = options_.optional && error.code == Code::kForbidden;
  if (kept && !std::exchange(refused_, true)) {
    log_warn("kube", "no longer permitted; what is known is kept until it is permitted again",
             {{"resource", options_.resource.plural}, {"namespace", options_.namespace_name}});
  }
  return kept;
}

void Reflector::list(ReflectorState::Do how) {
  sleeps_ = false;
  const bool first = state_.version().empty();
  const bool newest = how != ReflectorState::Do::kList;
  const std::string query = "resourceVersion=" + (newest  ? ""
                                                  : first ? std::string("0")
                                                          : state_.version());
  const auto page = list_pages(query, how == ReflectorState::Do::kListPaged ? kPageSize : 0);
  if (!page) {
    if (counts_as_empty(page.error())) return;
    log_warn("kube", "list failed",
             {{"resource", options_.resource.plural}, {"error", page.error().message}});
    sink_.connected(keeps_what_it_knows(page.error()));
    state_.list_failed(page.error(), clock_.now());
    return;
  }
  if (options_.on_relist && !first) options_.on_relist("expired");
  listed_ = true;
  refused_ = false;
  sink_.replace(page->items, page->resource_version);
  sink_.connected(true);
  state_.listed(page->resource_version, clock_.now());
}

// Lists the objects at exactly the version held and compares them with the sink's content.
void Reflector::verify() {
  const auto page =
      list_pages("resourceVersion=" + state_.version() + "&resourceVersionMatch=Exact", 0);
  state_.verified(clock_.now());
  if (!page) {
    log_debug("kube", "no comparison possible",
              {{"resource", options_.resource.plural}, {"error", page.error().message}});
    return;
  }
  const int differences = sink_.compare(page->items);
  if (differences == 0) return;
  log_error("kube", "the cache has drifted from the API server, listing again",
            {{"resource", options_.resource.plural}, {"differences", differences}});
  if (options_.on_drift) options_.on_drift(differences);
  sink_.replace(page->items, page->resource_version);
}

void Reflector::watch(std::stop_token stop) {
  const SteadyTime begin = clock_.now();
  std::stop_source end;  // stop from outside, or an ERROR event
  const std::stop_callback forward(stop, [&end] { end.request_stop(); });
  const auto on_line = [&](std::string_view line) {
    if (end.stop_requested()) return;
    const auto event = api::decode_watch_event(line);
    if (!event) {
      log_error("kube", "unreadable watch line", {{"error", event.error().message}});
      return;
    }
    if (state_.event(*event) == ReflectorState::Take::kEndWatch) {
      log_info("kube", "the API server ended a watch",
               {{"resource", options_.resource.plural}, {"error", event->error_message}});
      end.request_stop();
      return;
    }
    sink_.connected(true);
    sink_.event(*event);
  };
  const auto result = client_.watch(
      options_.resource, options_.namespace_name,
      "?watch=true&allowWatchBookmarks=true&resourceVersion=" + state_.version() +
          "&timeoutSeconds=" + std::to_string(state_.watch_seconds()) + selector_query(),
      end.get_token(), on_line);
  if (stop.stop_requested()) return;
  std::optional<ApiError> error;
  const bool by_us = end.stop_requested();  // after an ERROR event, which the state has seen
  if (!result && !by_us && result.error().code != Code::kTimeout) {
    error = result.error();
    log_info("kube", "watch broken",
             {{"resource", options_.resource.plural}, {"error", error->message}});
  }
  if (error && counts_as_empty(*error)) return;
  if (error) {
    sink_.connected(keeps_what_it_knows(*error));
  } else {
    refused_ = false;
  }
  state_.watch_ended(error, clock_.now() - begin, clock_.now());
}

}  // namespace weir::kube
