// SPDX-License-Identifier: Apache-2.0
// The self-made certificates of the control API: an authority in the Secret of the operator's keys,
// and a leaf that each replica issues to itself in memory. ECDSA P-256.
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
// A new leaf is issued (Server::set_tls) when the remaining life is less than this.
constexpr std::chrono::hours kLeafRenew{24 * 30};

struct Authority {
  std::string certificate_pem, key_pem;
};

Authority make_authority(SystemTime now);

struct Validity {
  SystemTime from{}, until{};  // from: when it was issued; notBefore is some minutes earlier
};
// Validity of the first certificate in the text; nothing if it cannot be read.
std::optional<Validity> validity(const std::string& certificate_pem);

// Issues a certificate for these DNS names and IP addresses. The chain has the leaf only. kInvalid:
// the authority cannot be read.
Result<http::TlsIdentity> issue_leaf(const Authority& authority,
                                     const std::vector<std::string>& names, SystemTime now);

// "<service>", "<service>.<ns>", "<service>.<ns>.svc", "<service>.<ns>.svc.cluster.local" and the
// pod's own address, to which callers are redirected if the pod leads.
std::vector<std::string> control_names(const std::string& service,
                                       const std::string& namespace_name,
                                       const std::string& pod_ip);
// "<service>.<ns>.svc": the name that workers verify, also after a redirect to a pod.
std::string worker_name(const std::string& service, const std::string& namespace_name);

}  // namespace weir::control_server
