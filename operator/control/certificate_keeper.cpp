// SPDX-License-Identifier: Apache-2.0
#include "operator/control/certificate_keeper.h"

#include <utility>

#include "worker/base/log.h"

namespace weir::control_server {

std::optional<Keys> rotated(const Keys& keys, SystemTime now) {
  Keys out = keys;
  bool changed = false;
  const auto life_of = [](const std::string& pem) { return validity(pem).value_or(Validity{}); };
  if (!out.retired_pem.empty() && life_of(out.retired_pem).until <= now) {
    out.retired_pem.clear();
    changed = true;
  }
  if (!out.next && life_of(out.authority.certificate_pem).until - now < kAuthorityRenew) {
    out.next = make_authority(now);
    changed = true;
  } else if (out.next && now - life_of(out.next->certificate_pem).from >= kAnnounced) {
    out.retired_pem = std::exchange(out.authority, *std::move(out.next)).certificate_pem;
    out.next.reset();
    changed = true;
  }
  return changed ? std::optional(std::move(out)) : std::nullopt;
}

Status CertificateKeeper::load() {
  WEIR_TRY(Keys loaded, ensure_keys(parts_.client, parts_.secret, parts_.clock.system_now()));
  take(std::move(loaded));
  return Unit{};
}

void CertificateKeeper::take(Keys keys) {
  const std::lock_guard lock(keys_mutex_);
  keys_ = std::move(keys);
}

Keys CertificateKeeper::keys() const {
  const std::lock_guard lock(keys_mutex_);
  return keys_;
}

std::string CertificateKeeper::bundle() const {
  return bundle_of(keys());
}

std::string CertificateKeeper::seed() const {
  return keys().seed;
}

Result<http::TlsIdentity> CertificateKeeper::issue() {
  const Keys now = keys();
  WEIR_TRY(http::TlsIdentity leaf,
           issue_leaf(now.authority, parts_.names, parts_.clock.system_now()));
  leaf_issued_ = parts_.clock.system_now();
  leaf_authority_ = now.authority.certificate_pem;
  return leaf;
}

Result<CertificateKeeper::Changes> CertificateKeeper::refresh(bool leading) {
  Changes changes;
  const SystemTime now = parts_.clock.system_now();
  const std::string before = bundle();
  Status read = Unit{};
  if (auto found = read_keys(parts_.client, parts_.secret)) {
    Keys newest = std::move(found->keys);
    if (auto next = leading ? rotated(newest, now) : std::nullopt) {
      read = write_keys(parts_.client, parts_.secret, found->json, *next);
      if (read) {
        log_info("control", "authority of the control API",
                 {{"reason", next->next ? "NextAnnounced" : "Changed"}});
        newest = *std::move(next);
      }
    }
    take(std::move(newest));
  } else {
    read = found.error();
  }
  changes.bundle = bundle() != before;
  const bool old_leaf = leaf_issued_ + kLeafLife - now <= kLeafRenew;
  if (old_leaf || leaf_authority_ != keys().authority.certificate_pem) {
    WEIR_TRY(changes.leaf, issue());
  }
  if (!read && !changes.leaf && !changes.bundle) return read.error();
  return changes;
}

}  // namespace weir::control_server
