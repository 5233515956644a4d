// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_transport.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/http/text.h"

namespace weir::test {

using http::Method;
using http::Request;
using http::Response;
using nlohmann::json;

struct FakeTransport::Address {
  std::string collection;  // "/api/v1", "/apis/weir.dev/v1alpha1"
  std::string ns, plural, name, subresource;
  std::map<std::string, std::string> query;

  std::string object(const std::string& of) const {
    return collection + (ns.empty() ? "" : "/namespaces/" + ns) + "/" + plural + "/" + of;
  }
  // True for objects of this collection, in any namespace if none is named.
  bool holds(const std::string& path) const {
    const Address other = parse(path);
    return other.collection == collection && other.plural == plural &&
           (ns.empty() || other.ns == ns);
  }
};

namespace {

// The only selectors we use: a label exists, or has a value.
bool selected(const json& object, const std::map<std::string, std::string>& query) {
  const auto selector = query.find("labelSelector");
  if (selector == query.end()) return true;
  std::string label = selector->second;
  const auto decode = [&](const char* code, const char* character) {
    for (std::size_t at; (at = label.find(code)) != std::string::npos;)
      label.replace(at, 3, character);
  };
  decode("%2F", "/");
  decode("%3D", "=");
  const std::size_t equals = label.find('=');
  const auto labels = object["metadata"].value("labels", json::object());
  const auto found = labels.find(label.substr(0, equals));
  if (found == labels.end()) return false;
  return equals == std::string::npos || *found == label.substr(equals + 1);
}

}  // namespace

FakeTransport::Address FakeTransport::parse(const std::string& path) {
  Address out;
  const std::size_t mark = path.find('?');
  std::vector<std::string> parts;
  std::istringstream in(path.substr(0, mark));
  for (std::string part; std::getline(in, part, '/');) {
    if (!part.empty()) parts.push_back(part);
  }
  const std::size_t head = parts.at(0) == "api" ? 2 : 3;
  for (std::size_t i = 0; i < head; ++i) out.collection += "/" + parts.at(i);
  std::size_t at = head;
  if (parts.size() > at + 1 && parts[at] == "namespaces") {
    out.ns = parts[at + 1];
    at += 2;
  }
  if (parts.size() > at) out.plural = parts[at];
  if (parts.size() > at + 1) out.name = parts[at + 1];
  if (parts.size() > at + 2) out.subresource = parts[at + 2];
  if (mark == std::string::npos) return out;
  std::istringstream pairs(path.substr(mark + 1));
  for (std::string pair; std::getline(pairs, pair, '&');) {
    const std::size_t equal = pair.find('=');
    out.query[pair.substr(0, equal)] = equal == std::string::npos ? "" : pair.substr(equal + 1);
  }
  return out;
}

Response FakeTransport::status(int code, const std::string& reason, const std::string& message) {
  const json body = {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
  return {code, {{"Content-Type", "application/json"}}, body.dump()};
}

// Writes an object with the next version and tells the watches.
void FakeTransport::store(const std::string& path, const std::string& text, const char* type) {
  json object = json::parse(text);
  json& metadata = object["metadata"];
  ++version_;
  metadata["resourceVersion"] = std::to_string(version_);
  if (!metadata.contains("uid")) metadata["uid"] = "uid-" + std::to_string(next_uid_++);
  if (!metadata.contains("creationTimestamp")) {
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z";
  }
  if (std::string_view(type) == "DELETED") {
    objects_.erase(path);
  } else {
    objects_[path] = object.dump();
  }
  changes_.push_back({version_, path, json{{"type", type}, {"object", object}}.dump() + "\n"});
  changed_.notify_all();
}

void FakeTransport::put(const std::string& path, const std::string& text) {
  const std::lock_guard lock(mutex_);
  json object = json::parse(text);
  const auto before = objects_.find(path);
  if (before != objects_.end() && !object["metadata"].contains("uid")) {
    object["metadata"]["uid"] = json::parse(before->second)["metadata"]["uid"];
  }
  const Address address = parse(path);
  object["metadata"]["name"] = address.name;
  if (!address.ns.empty()) object["metadata"]["namespace"] = address.ns;
  store(path, object.dump(), before == objects_.end() ? "ADDED" : "MODIFIED");
}

void FakeTransport::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (objects_.contains(path)) store(path, objects_[path], "DELETED");
}

std::string FakeTransport::get(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(path);
  return found == objects_.end() ? "" : found->second;
}

std::vector<std::string> FakeTransport::paths() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [path, object] : objects_) all.push_back(path);
  return all;
}

std::vector<std::string> FakeTransport::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}
std::string FakeTransport::last_body() const {
  const std::lock_guard lock(mutex_);
  return bodies_.empty() ? "" : bodies_.back();
}
http::Headers FakeTransport::last_headers() const {
  const std::lock_guard lock(mutex_);
  return last_headers_;
}
int FakeTransport::count(const std::string& match) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(
      requests_, [&](const std::string& line) { return line.find(match) != std::string::npos; }));
}

void FakeTransport::fail(Fault fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
}

std::optional<FakeTransport::Fault> FakeTransport::take_fault(const std::string& line) {
  for (Fault& fault : faults_) {
    if (fault.count > 0 && line.find(fault.match) != std::string::npos) {
      --fault.count;
      return fault;
    }
  }
  return std::nullopt;
}

void FakeTransport::end_watches() {
  const std::lock_guard lock(mutex_);
  ++generation_;
  changed_.notify_all();
}
void FakeTransport::compact() {
  const std::lock_guard lock(mutex_);
  compacted_ = ++version_;
}
void FakeTransport::wait_for_watches(int open) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(30), [&] { return watches_ == open; });
}

Response FakeTransport::list(const Address& address) const {
  json items = json::array();
  for (const auto& [path, text] : objects_) {
    if (!address.holds(path)) continue;
    json object = json::parse(text);
    if (selected(object, address.query)) items.push_back(std::move(object));
  }
  return {200,
          {},
          json{{"metadata", {{"resourceVersion", std::to_string(version_)}}},
               {"items", std::move(items)}}
              .dump()};
}

Response FakeTransport::create(const Address& address, const Request& request) {
  json object = json::parse(request.body);
  object["metadata"].erase("resourceVersion");
  const std::string path = address.object(object["metadata"].value("name", ""));
  if (objects_.contains(path)) return status(409, "AlreadyExists", path + " already exists");
  if (address.query.contains("dryRun")) return {201, {}, object.dump()};
  store(path, object.dump(), "ADDED");
  return {201, {}, objects_[path]};
}

Response FakeTransport::change(const Address& address, const Request& request) {
  const std::string path = address.object(address.name);
  const bool apply = request.path.find("fieldManager=") != std::string::npos;
  json body = json::parse(request.body);
  if (!objects_.contains(path)) {
    if (!apply || !address.subresource.empty()) return status(404, "NotFound", path + " not found");
    store(path, body.dump(), "ADDED");
    return {201, {}, objects_[path]};
  }
  json object = json::parse(objects_[path]);
  const std::string wanted = body.value("metadata", json::object()).value("resourceVersion", "");
  if (!wanted.empty() && wanted != object["metadata"]["resourceVersion"]) {
    return status(409, "Conflict", "the object has been modified");
  }
  const json uid = object["metadata"]["uid"];
  if (request.method == Method::kPut) {
    object = std::move(body);
    object["metadata"]["uid"] = uid;
  } else {
    object.merge_patch(body);
  }
  store(path, object.dump(), "MODIFIED");
  return {200, {}, objects_[path]};
}

Response FakeTransport::erase(const Address& address, const Request& request) {
  const std::string path = address.object(address.name);
  if (!objects_.contains(path)) return status(404, "NotFound", path + " not found");
  const json options = json::parse(request.body);
  const std::string uid = options.value("preconditions", json::object()).value("uid", "");
  if (!uid.empty() && json::parse(objects_[path])["metadata"]["uid"] != uid) {
    return status(409, "Conflict", "the UID in the precondition does not match");
  }
  store(path, objects_[path], "DELETED");
  return {200, {}, "{}"};
}

Response FakeTransport::serve(const Request& request) {
  const Address address = parse(request.path);
  switch (request.method) {
    case Method::kGet: {
      if (address.name.empty()) return list(address);
      const auto found = objects_.find(address.object(address.name));
      if (found == objects_.end()) return status(404, "NotFound", request.path + " not found");
      return {200, {}, found->second};
    }
    case Method::kPost:
      return create(address, request);
    case Method::kPut:
    case Method::kPatch:
      return change(address, request);
    case Method::kDelete:
      return erase(address, request);
  }
  return status(405, "MethodNotAllowed", request.path);
}

Result<Response> FakeTransport::send(const Request& request, http::Deadline, std::stop_token stop) {
  if (stop.stop_requested()) return Error{Code::kCancelled, "stopped"};
  const std::lock_guard lock(mutex_);
  const std::string line = std::string(method_name(request.method)) + " " + request.path;
  requests_.push_back(line);
  bodies_.push_back(request.body);
  last_headers_ = request.headers;
  const auto fault = take_fault(line);
  if (fault && fault->after_effect) serve(request);
  if (fault && fault->error) return *fault->error;
  if (fault && fault->response) return *fault->response;
  return serve(request);
}

Result<Response> FakeTransport::stream(const Request& request, std::stop_token stop,
                                       const std::function<void(std::string_view)>& on_bytes) {
  std::unique_lock lock(mutex_);
  const std::string line = "WATCH " + request.path;
  requests_.push_back(line);
  if (const auto fault = take_fault(line)) {
    if (fault->error) return *fault->error;
    if (fault->response) return *fault->response;
  }
  const Address address = parse(request.path);
  std::int64_t seen = std::stoll(address.query.at("resourceVersion"));
  if (seen < compacted_) return status(410, "Expired", "too old resource version");
  const int generation = generation_;
  ++watches_;
  changed_.notify_all();
  while (!stop.stop_requested() && generation == generation_) {
    std::string out;
    for (const Change& change : changes_) {
      if (change.version <= seen) continue;
      seen = change.version;
      if (address.holds(change.path) &&
          selected(json::parse(change.line)["object"], address.query)) {
        out += change.line;
      }
    }
    if (!out.empty()) {
      lock.unlock();
      on_bytes(out);
      lock.lock();
      continue;
    }
    changed_.wait_for(lock, stop, std::chrono::seconds(30), [&] {
      return generation != generation_ || (!changes_.empty() && changes_.back().version > seen);
    });
  }
  --watches_;
  changed_.notify_all();
  if (stop.stop_requested()) return Error{Code::kCancelled, "stopped"};
  return Response{200, {}, ""};
}

}  // namespace weir::test
