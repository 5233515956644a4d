// SPDX-License-Identifier: Apache-2.0
// Certificates of a running control API. The certificate that is served (the leaf) comes from the
// self-made authority or from the user's files (own_certificate.h, "own" below). In both cases an
// authority is first announced in every <job>-control, then used once workers have it, and it stays
// there for a while after another one has replaced it. The Secret of the keys holds all
// authorities, so that replicas with and without files hand out the same bundle; only the leader
// writes it. bundle(), seed() and leaf_ends() are thread-safe. The rest is for one thread and
// blocks on the API server.
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

// An authority gets a successor when its remaining life is less than this.
constexpr std::chrono::hours kAuthorityRenew{24 * 365};
// How long a successor is in the bundles before it signs, and how long an own authority stays in
// them after another one has replaced it.
constexpr std::chrono::hours kAnnounced{24};
// How long an own authority is in the bundles before its certificate is served. A replica reads the
// Secret each minute, and kubelets update a changed ConfigMap in its pods within two minutes.
constexpr std::chrono::minutes kOwnAnnounced{5};

// The keys after the next step of a change of authority, if a step is due. own_pem: authority in
// this replica's files, "" = none. Pure, except that it makes random keys.
std::optional<Keys> rotated(const Keys& keys, const std::string& own_pem, SystemTime now);

class CertificateKeeper {
 public:
  struct Parts {
    kube::Client& client;
    Clock& clock;
    KeysSecret secret;
    std::vector<std::string> names;  // names in the self-made leaf
    std::string worker_name;         // name that workers connect to
    std::string own_dir;             // folder with tls.crt, tls.key and ca.crt; "" = none
  };
  explicit CertificateKeeper(Parts parts) : parts_(std::move(parts)) {}

  // Reads the files, and reads or makes the Secret. Call it first. kInvalid: the files are wrong.
  Status load();
  // The certificate to serve now: the newest own one whose authority workers know, until it ends;
  // else a self-made one, whose authority is in all bundles.
  Result<http::TlsIdentity> leaf();

  struct Changes {
    std::optional<http::TlsIdentity> leaf;  // new certificate for new connections
    bool own = false;                       // the served leaf comes from the user's files
    bool bundle = false;                    // every <job>-control must be written again
    std::vector<Error> errors;              // of files and Secret; the rest is done nevertheless
  };
  // Call it once a minute. If the files are wrong, the last good ones stay in use.
  Changes refresh(bool leading);

  std::string bundle() const;
  std::string seed() const;
  SystemTime leaf_ends() const;  // end of the leaf that leaf() returned last

 private:
  void take(Keys keys);
  Keys keys() const;
  const OwnCertificate* usable_own(const Keys& keys, SystemTime now) const;
  Status read_own(SystemTime now);
  Status read_secret(bool leading, SystemTime now);

  const Parts parts_;
  std::optional<OwnCertificate> own_;         // from the last good files
  std::optional<OwnCertificate> served_own_;  // nothing = a self-made leaf is served
  std::string leaf_authority_;                // certificate of the self-made leaf's issuer

  mutable std::mutex mutex_;  // guards keys_, leaf_ends_
  Keys keys_;
  SystemTime leaf_ends_{};
};

}  // namespace weir::control_server
