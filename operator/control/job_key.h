// SPDX-License-Identifier: Apache-2.0
// The secrets of the operator: the contents of the Secret of its keys, and the key of a job, which
// all replicas derive equally from it (worker/protocol/README.md "Control API").
#pragma once

#include <optional>
#include <string>

#include "operator/control/certificates.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::control_server {

// The Secret in the operator's own namespace. Each operator in a namespace has its own.
struct KeysSecret {
  std::string namespace_name;
  std::string name = "weir-operator-keys";
};

// The authority that issued the user's certificate (own_certificate.h). Every replica hands it to
// workers, also a replica without the user's files.
struct OwnAuthority {
  std::string pem;     // "" = none
  SystemTime since{};  // when it was first announced to workers; the epoch = before all workers
  std::string retired_pem;  // the authority before; "" = none
};

struct Keys {
  Authority authority;
  std::string seed;               // 32 raw bytes
  std::optional<Authority> next;  // announced; it signs later
  std::string retired_pem;        // certificate of the authority before; "" = none
  OwnAuthority own;
};
// All certificates that workers must trust: of the self-made authority, the next, the retired and
// the user's ones.
std::string bundle_of(const Keys& keys);

// HMAC-SHA256(seed, job uid): 32 raw bytes.
std::string key_of_job(const std::string& seed, const std::string& job_uid);

// Reads the Secret. If it is absent, creates it with the user's authority own_pem; if another
// replica is faster, reads that one. Blocks. kInvalid: the Secret exists without our data.
Result<Keys> ensure_keys(kube::Client& client, const KeysSecret& secret, SystemTime now,
                         const std::string& own_pem = "");

// The Secret and its JSON, which write_keys needs.
struct FoundKeys {
  Keys keys;
  std::string json;
};
Result<FoundKeys> read_keys(kube::Client& client, const KeysSecret& secret);
// Creates the Secret again with the keys in use after somebody has deleted it. Otherwise a replica
// that starts would make new keys, and workers of one job would get different keys. kConflict: the
// Secret exists again.
Status restore_keys(kube::Client& client, const KeysSecret& secret, const Keys& keys);
// Updates the Secret with the resourceVersion of found_json, so that one of two writers gets
// kConflict.
Status write_keys(kube::Client& client, const KeysSecret& secret, const std::string& found_json,
                  const Keys& keys);

}  // namespace weir::control_server
