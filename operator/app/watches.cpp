// SPDX-License-Identifier: Apache-2.0
#include "operator/app/watches.h"

#include <pthread.h>
#include <utility>

#include "operator/api/names.h"
#include "worker/base/random.h"

namespace weir::operator_app {
namespace {

constexpr auto kOfAJob = api::kJobName;  // label selector: the label exists
// If one of several namespaces is deleted together with the operator's role in it, work in the
// others goes on; the watch tries again after this time.
constexpr std::chrono::seconds kNamespaceRetry{30};

}  // namespace

Watches::Watches(kube::Client& client, Clock& clock, cache::ObjectCache& cache,
                 telemetry::Endpoint& metrics, const std::vector<std::string>& scopes,
                 std::chrono::seconds verify_every, bool volcano)
    : client_(client), clock_(clock), metrics_(metrics), verify_every_(verify_every) {
  for (const std::string& scope : scopes) {
    const auto of_scope = [&](const kube::Resource& resource, const char* selector) {
      return kube::ReflectorOptions{.resource = resource,
                                    .namespace_name = scope,
                                    .label_selector = selector,
                                    .optional = scopes.size() > 1,
                                    .forbidden_retry = kNamespaceRetry};
    };
    start(of_scope(kube::pipeline_jobs(), ""), cache.jobs(scope));
    start(of_scope(kube::pods(), kOfAJob), cache.pods(scope));
    start(of_scope(kube::services(), kOfAJob), cache.services(scope));
    start(of_scope(kube::config_maps(), kOfAJob), cache.config_maps(scope));
    if (!volcano) continue;
    auto groups = of_scope(kube::volcano_pod_groups(), kOfAJob);
    groups.optional = groups.may_be_absent = true;  // Volcano may come later
    start(std::move(groups), cache.pod_groups(scope));
  }
  start({.resource = kube::nodes(), .optional = true}, cache.nodes_sink());
}

Watches::~Watches() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void Watches::start(kube::ReflectorOptions options, kube::Sink sink) {
  const telemetry::Labels resource = {{"resource", options.resource.plural}};
  telemetry::Labels expired = resource;
  expired.emplace_back("reason", "expired");
  auto& relists = metrics_.counter("weir_reflector_relists_total",
                                   "Lists after the first one, by resource and reason.", expired);
  auto& drift =
      metrics_.counter("weir_reflector_drift_total",
                       "Objects that differed from the API server; must stay 0.", resource);
  options.verify_every = verify_every_;
  options.on_relist = [&relists](const char*) { relists.add(); };
  options.on_drift = [&drift](int differences) { drift.add(differences); };
  // Different seeds make the watches end at different times.
  options.seed =
      mix_seed(static_cast<std::uint64_t>(clock_.system_now().time_since_epoch().count()),
               options.resource.plural + options.namespace_name);
  const std::string name = "watch-" + options.resource.plural;
  reflectors_.push_back(
      std::make_unique<kube::Reflector>(client_, clock_, std::move(options), std::move(sink)));
  kube::Reflector& reflector = *reflectors_.back();
  threads_.emplace_back([&reflector](const std::stop_token& stop) { reflector.run(stop); });
  pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
}

}  // namespace weir::operator_app
