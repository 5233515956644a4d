// SPDX-License-Identifier: Apache-2.0
// Certificates of a running control API: issues the leaf anew before it ends, and changes the
// authority in steps that no worker notices: the next one is announced in every <job>-control
// first, signs a day later, and the old one stays in the bundle until it ends. The Secret of the
// keys holds all of them; only the leader writes it. bundle() and seed() are
// thread-safe, the rest is for one thread and blocks on the API server.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "operator/control/certificates.h"
#include "operator/control/job_key.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::control_server {

// An authority with less than this left gets a successor.
constexpr std::chrono::hours kAuthorityRenew{24 * 365};
// How long a successor is in the bundles before it signs: the kubelets bring a changed ConfigMap to
// its pods within minutes, a replica looks at the Secret each hour.
constexpr std::chrono::hours kAnnounced{24};

// The next step of a change of authority, if one is due; pure but for the new key.
std::optional<Keys> rotated(const Keys& keys, SystemTime now);

class CertificateKeeper {
 public:
  struct Parts {
    kube::Client& client;
    Clock& clock;
    KeysSecret secret;
    std::vector<std::string> names;  // of the leaf
  };
  explicit CertificateKeeper(Parts parts) : parts_(std::move(parts)) {}

  // Reads or makes the Secret; before anything else.
  Status load();
  Result<http::TlsIdentity> issue();

  struct Changes {
    std::optional<http::TlsIdentity> leaf;  // for new connections
    bool bundle = false;                    // every <job>-control must be written again
  };
  // Look once an hour. Error: the Secret cannot be read or written; a leaf near its end is issued
  // all the same, by the next call if not by this one.
  Result<Changes> refresh(bool leading);

  std::string bundle() const;
  std::string seed() const;

 private:
  void take(Keys keys);
  Keys keys() const;

  const Parts parts_;
  SystemTime leaf_issued_{};
  std::string leaf_authority_;  // certificate that the leaf was issued by

  mutable std::mutex keys_mutex_;  // guards keys_
  Keys keys_;
};

}  // namespace weir::control_server
