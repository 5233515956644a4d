// SPDX-License-Identifier: Apache-2.0
// The secrets of the operator: what the Secret of its keys holds, and the key of a job, which every
// replica derives alike (worker/protocol/README.md "Control API").
#pragma once

#include <optional>
#include <string>

#include "operator/control/certificates.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::control_server {

// The Secret, in the operator's own namespace. Two operators in one namespace have two.
struct KeysSecret {
  std::string namespace_name;
  std::string name = "weir-operator-keys";
};

// Who vouches for certificates that the operator was given (own_certificate.h). Every replica hands
// it to workers, also one that was given none.
struct OwnAuthority {
  std::string pem;          // "" = none
  SystemTime since{};       // when workers were first told; the epoch: before any of them ran
  std::string retired_pem;  // the one before, "" = none
};

struct Keys {
  Authority authority;
  std::string seed;               // 32 raw bytes
  std::optional<Authority> next;  // announced, signs later
  std::string retired_pem;        // the certificate before, "" = none
  OwnAuthority own;
};
// What workers must trust: the self-made authority, the next and the retired one, and own ones.
std::string bundle_of(const Keys& keys);

// HMAC-SHA256(seed, job uid): 32 raw bytes.
std::string key_of_job(const std::string& seed, const std::string& job_uid);

// Reads the Secret; creates it if it is absent, with this own authority, and reads it when another
// replica was faster. Blocks. kInvalid: a Secret of that name without our data.
Result<Keys> ensure_keys(kube::Client& client, const KeysSecret& secret, SystemTime now,
                         const std::string& own_pem = "");

// The Secret as it is, with its JSON for write_keys.
struct FoundKeys {
  Keys keys;
  std::string json;
};
Result<FoundKeys> read_keys(kube::Client& client, const KeysSecret& secret);
// POST of keys that are in use, where somebody has removed the Secret: a replica that starts would
// make others, and workers of one job would be told different keys. kConflict: it is there again.
Status restore_keys(kube::Client& client, const KeysSecret& secret, const Keys& keys);
// PUT with the version of `found_json`: of two writers one gets kConflict.
Status write_keys(kube::Client& client, const KeysSecret& secret, const std::string& found_json,
                  const Keys& keys);

}  // namespace weir::control_server
