// SPDX-License-Identifier: Apache-2.0
// Certificates of a running control API. Leaves come from one of two sources: the self-made
// authority, or files that the operator was given (own_certificate.h). Of both the rule is: an
// authority is announced in every <job>-control first, is used once workers have it, and stays
// there for a while when another one has come. The Secret of the keys holds them all, so replicas
// with and without files hand out the same bundle; only the leader writes it. bundle(), seed() and
// leaf_ends() are thread-safe, the rest is for one thread and blocks on the API server.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "operator/control/certificates.h"
#include "operator/control/job_key.h"
#include "operator/control/own_certificate.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::control_server {

// An authority with less than this left gets a successor.
constexpr std::chrono::hours kAuthorityRenew{24 * 365};
// How long a successor is in the bundles before it signs, and an own authority stays in them after
// another one has come.
constexpr std::chrono::hours kAnnounced{24};
// How long an own authority is in the bundles before its certificate is served: a replica looks at
// the Secret each minute, and kubelets bring a changed ConfigMap to its pods within two.
constexpr std::chrono::minutes kOwnAnnounced{5};

// The next step of a change of authority, if one is due; own_pem: that of this replica's files, ""
// = none. Pure but for the new key.
std::optional<Keys> rotated(const Keys& keys, const std::string& own_pem, SystemTime now);

class CertificateKeeper {
 public:
  struct Parts {
    kube::Client& client;
    Clock& clock;
    KeysSecret secret;
    std::vector<std::string> names;  // of the self-made leaf
    std::string worker_name;         // that workers ask for
    std::string own_dir;             // with tls.crt, tls.key and ca.crt; "" = none
  };
  explicit CertificateKeeper(Parts parts) : parts_(std::move(parts)) {}

  // Reads the files, and reads or makes the Secret; before anything else. kInvalid: the files.
  Status load();
  // What to serve now: the newest own one whose authority workers know, until it ends; else a
  // self-made one, whose authority is in all bundles.
  Result<http::TlsIdentity> leaf();

  struct Changes {
    std::optional<http::TlsIdentity> leaf;  // for new connections
    bool own = false;                       // that leaf is the given one
    bool bundle = false;                    // every <job>-control must be written again
    std::vector<Error> errors;              // files, Secret; the rest is done all the same
  };
  // Look once a minute. Files that are wrong leave the last good ones in use.
  Changes refresh(bool leading);

  std::string bundle() const;
  std::string seed() const;
  SystemTime leaf_ends() const;  // of the leaf that was handed out last

 private:
  void take(Keys keys);
  Keys keys() const;
  const OwnCertificate* usable_own(const Keys& keys, SystemTime now) const;
  Status read_own(SystemTime now);
  Status read_secret(bool leading, SystemTime now);

  const Parts parts_;
  std::optional<OwnCertificate> own_;         // last good files
  std::optional<OwnCertificate> served_own_;  // nothing while a self-made leaf is served
  std::string leaf_authority_;                // certificate that the self-made leaf was issued by

  mutable std::mutex mutex_;  // guards keys_, leaf_ends_
  Keys keys_;
  SystemTime leaf_ends_{};
};

}  // namespace weir::control_server
