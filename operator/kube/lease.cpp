// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/lease.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/kube/status_error.h"
#include "worker/base/log.h"
#include "worker/base/time_text.h"

namespace weir::kube {
namespace {

using nlohmann::json;

constexpr double kJitter = 1.2;  // client-go JitterFactor

ApiResult<LeaseRecord> decode(const ApiResult<std::string>& answer) {
  if (!answer) return answer.error();
  const json lease = json::parse(*answer, nullptr, false);
  if (!lease.is_object() || !lease.contains("metadata") || !lease["metadata"].is_object()) {
    return transport_error({Code::kInvalid, "lease: not an object"});
  }
  LeaseRecord record;
  record.json = *answer;
  const json& metadata = lease["metadata"];
  const auto text = [](const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto number = [](const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
  };
  record.resource_version = text(metadata, "resourceVersion");
  const json spec =
      lease.contains("spec") && lease["spec"].is_object() ? lease["spec"] : json::object();
  record.holder = text(spec, "holderIdentity");
  record.duration_seconds = number(spec, "leaseDurationSeconds");
  record.transitions = number(spec, "leaseTransitions");
  return record;
}

}  // namespace

Elector::Elector(Client& client, Clock& clock, LeaseOptions options, std::uint64_t seed)
    : client_(client), clock_(clock), options_(std::move(options)), random_(seed) {}

ApiResult<LeaseRecord> Elector::read() {
  return decode(client_.get(leases(), options_.namespace_name, options_.name));
}

ApiResult<LeaseRecord> Elector::create() {
  const std::string now = to_rfc3339_micro(clock_.system_now());
  const json lease = {
      {"apiVersion", "coordination.k8s.io/v1"},
      {"kind", "Lease"},
      {"metadata", {{"name", options_.name}, {"namespace", options_.namespace_name}}},
      {"spec",
       {{"holderIdentity", options_.identity},
        {"leaseDurationSeconds", options_.duration.count()},
        {"acquireTime", now},
        {"renewTime", now},
        {"leaseTransitions", 0}}}};
  return decode(client_.create(leases(), options_.namespace_name, lease.dump()));
}

// Updates the record as it was read, with its resourceVersion, so that one of two writers gets 409.
ApiResult<LeaseRecord> Elector::write(const LeaseRecord& old, const std::string& holder) {
  json lease = json::parse(old.json, nullptr, false);
  if (!lease.is_object()) return transport_error({Code::kInvalid, "lease: not an object"});
  lease["metadata"].erase("managedFields");
  json& spec = lease["spec"];
  if (!spec.is_object()) spec = json::object();
  const std::string now = to_rfc3339_micro(clock_.system_now());
  if (old.holder != holder && !holder.empty()) {
    spec["acquireTime"] = now;
    spec["leaseTransitions"] = old.transitions + 1;
  }
  spec["holderIdentity"] = holder;
  spec["renewTime"] = now;
  spec["leaseDurationSeconds"] = holder.empty() ? 1 : options_.duration.count();
  return decode(client_.update(leases(), options_.namespace_name, options_.name, lease.dump()));
}

void Elector::note(const LeaseRecord& record) {
  if (!record_ || record_->resource_version != record.resource_version) {
    changed_at_ = clock_.now();
  }
  record_ = record;
  const std::lock_guard lock(mutex_);
  holder_ = record.holder;
}

bool Elector::try_once() {
  const SteadyTime asked = clock_.now();
  const auto won = [&](const ApiResult<LeaseRecord>& record) {
    if (!record) return false;
    note(*record);
    const std::lock_guard lock(mutex_);
    if (!since_) since_ = clock_.system_now();
    renewed_ = asked;
    return true;
  };
  if (record_ && record_->holder == options_.identity) {
    const auto kept = write(*record_, options_.identity);
    if (kept || kept.error().code != Code::kConflict) return won(kept);
  }
  const auto seen = read();
  if (!seen) {
    if (seen.error().http_status == 404) return won(create());
    log_debug("lease", "cannot be read", {{"error", seen.error().message}});
    return false;
  }
  note(*seen);
  const bool free = seen->holder.empty() || seen->holder == options_.identity ||
                    clock_.now() >= changed_at_ + std::chrono::seconds(seen->duration_seconds);
  return free && won(write(*seen, options_.identity));
}

void Elector::run(std::stop_token stop, const std::function<void()>& on_leading,
                  const std::function<void()>& on_lost) {
  while (!stop.stop_requested()) {
    const bool led = leading();
    if (try_once() && !led) {
      log_info("lease", "leading", {{"identity", options_.identity}});
      on_leading();
    }
    if (led && !may_write()) {
      {
        const std::lock_guard lock(mutex_);
        renewed_.reset();
      }
      log_error("lease", "lost", {{"holder", holder()}});
      on_lost();
      return;
    }
    if (!clock_.sleep_until(next_try(), stop)) return;
  }
}

SteadyTime Elector::next_try() {
  const SteadyTime now = clock_.now();
  const double jitter = leading() ? 1 : 1 + (kJitter - 1) * random_.uniform();
  const SteadyTime regular =
      now + std::chrono::duration_cast<SteadyTime::duration>(options_.retry * jitter);
  if (leading() || !record_) return regular;
  const SteadyTime expiry = changed_at_ + std::chrono::seconds(record_->duration_seconds);
  return expiry > now ? std::min(regular, expiry) : regular;
}

void Elector::release() {
  if (!leading() || !record_) return;
  {
    const std::lock_guard lock(mutex_);
    renewed_.reset();
  }
  const auto answer = write(*record_, "");
  if (!answer) log_warn("lease", "not released", {{"error", answer.error().message}});
}

bool Elector::leading() const {
  const std::lock_guard lock(mutex_);
  return renewed_.has_value();
}

std::string Elector::holder() const {
  const std::lock_guard lock(mutex_);
  return holder_;
}

bool Elector::may_write() const {
  const std::lock_guard lock(mutex_);
  return renewed_ && clock_.now() - *renewed_ < options_.renew_deadline;
}

std::optional<SystemTime> Elector::leading_since() const {
  const std::lock_guard lock(mutex_);
  return renewed_ ? since_ : std::nullopt;
}

}  // namespace weir::kube
