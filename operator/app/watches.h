// SPDX-License-Identifier: Apache-2.0
// The watch threads, one per resource and watched namespace. They fill the cache.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "operator/cache/object_cache.h"
#include "operator/kube/client.h"
#include "operator/kube/reflector.h"
#include "worker/base/clock.h"
#include "worker/telemetry/metric.h"

namespace weir::operator_app {

class Watches {
 public:
  // scopes: namespaces; {""} = all. client, clock, cache and metrics must outlive this.
  Watches(kube::Client& client, Clock& clock, cache::ObjectCache& cache,
          telemetry::Endpoint& metrics, const std::vector<std::string>& scopes,
          std::chrono::seconds verify_every, bool volcano);
  ~Watches();  // stops and joins the threads

 private:
  void start(kube::ReflectorOptions options, kube::Sink sink);

  kube::Client& client_;
  Clock& clock_;
  telemetry::Endpoint& metrics_;
  const std::chrono::seconds verify_every_;
  std::vector<std::unique_ptr<kube::Reflector>> reflectors_;
  std::vector<std::jthread> threads_;
};

}  // namespace weir::operator_app
