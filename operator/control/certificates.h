// SPDX-License-Identifier: Apache-2.0
// The self-made certificates of the control API: an authority that lives in the Secret of the
// operator's keys, and the leaf that each replica issues itself in memory. ECDSA P-256.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/http/server.h"

namespace weir::control_server {

constexpr std::chrono::hours kAuthorityLife{24 * 3650};
constexpr std::chrono::hours kLeafLife{24 * 365};
// A leaf is issued anew (Server::set_tls) when less than this is left.
constexpr std::chrono::hours kLeafRenew{24 * 30};

struct Authority {
  std::string certificate_pem, key_pem;
};

Authority make_authority(SystemTime now);

struct Validity {
  SystemTime from{}, until{};  // from: when it was made; notBefore is some minutes earlier
};
// Of the first certificate in the text; nothing when it cannot be read.
std::optional<Validity> validity(const std::string& certificate_pem);

// For these DNS names and IP addresses; the chain holds the leaf only. kInvalid: the authority
// cannot be read.
Result<http::TlsIdentity> issue_leaf(const Authority& authority,
                                     const std::vector<std::string>& names, SystemTime now);

// "<service>", "<service>.<ns>", "<service>.<ns>.svc", "<service>.<ns>.svc.cluster.local" and the
// pod's own address, for whoever is redirected to the leader.
std::vector<std::string> control_names(const std::string& service,
                                       const std::string& namespace_name,
                                       const std::string& pod_ip);
// "<service>.<ns>.svc": the name that workers ask for, also where they are redirected to a pod.
std::string worker_name(const std::string& service, const std::string& namespace_name);

}  // namespace weir::control_server
