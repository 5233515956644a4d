// SPDX-License-Identifier: Apache-2.0
#include "operator/control/certificate_keeper.h"

#include <utility>

#include "worker/base/log.h"

namespace weir::control_server {
namespace {

// Makes `newest` the own authority and retires the one before. Only the leader does this, so its
// files decide.
bool rotate_own(OwnAuthority& own, const std::string& newest, SystemTime now) {
  if (own.pem != newest) {
    own = {newest, now, own.pem.empty() ? own.retired_pem : own.pem};
    if (own.retired_pem == newest) own.retired_pem.clear();
    return true;
  }
  if (own.retired_pem.empty() || now - own.since < kAnnounced) return false;
  own.retired_pem.clear();
  return true;
}

}  // namespace

std::optional<Keys> rotated(const Keys& keys, const std::string& own_pem, SystemTime now) {
  Keys out = keys;
  bool changed = rotate_own(out.own, own_pem, now);
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
  const SystemTime now = parts_.clock.system_now();
  WEIR_OK(read_own(now));
  WEIR_TRY(Keys loaded, ensure_keys(parts_.client, parts_.secret, now,
                                    own_ ? own_->authority_pem : std::string()));
  take(std::move(loaded));
  return Unit{};
}

Status CertificateKeeper::read_own(SystemTime now) {
  if (parts_.own_dir.empty()) return Unit{};
  auto read = read_own_certificate(parts_.own_dir, parts_.worker_name, now);
  if (!read) return read.error();
  own_ = *std::move(read);
  return Unit{};
}

void CertificateKeeper::take(Keys keys) {
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
}

Keys CertificateKeeper::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

std::string CertificateKeeper::bundle() const {
  return bundle_of(keys());
}

std::string CertificateKeeper::seed() const {
  return keys().seed;
}

SystemTime CertificateKeeper::leaf_ends() const {
  const std::lock_guard lock(mutex_);
  return leaf_ends_;
}

const OwnCertificate* CertificateKeeper::usable_own(const Keys& keys, SystemTime now) const {
  const auto announced = now - keys.own.since;
  if (own_ && own_->until > now && own_->authority_pem == keys.own.pem &&
      announced >= kOwnAnnounced) {
    return &*own_;
  }
  // Until the newest certificate may be used, the one before is served. It is given up long before
  // bundles drop its authority.
  const auto known = [&](const std::string& authority) {
    return authority == keys.own.pem ||
           (authority == keys.own.retired_pem && announced < kAnnounced / 2);
  };
  const bool before = served_own_ && served_own_->until > now && known(served_own_->authority_pem);
  return before ? &*served_own_ : nullptr;
}

Result<http::TlsIdentity> CertificateKeeper::leaf() {
  const Keys current = keys();
  const SystemTime now = parts_.clock.system_now();
  if (const OwnCertificate* const own = usable_own(current, now)) {
    served_own_ = OwnCertificate(*own);
    const std::lock_guard lock(mutex_);
    leaf_ends_ = served_own_->until;
    return served_own_->identity;
  }
  WEIR_TRY(http::TlsIdentity made, issue_leaf(current.authority, parts_.names, now));
  if (own_) {
    log_info(
        "control", "own certificate is not served",
        {{"why", own_->until <= now ? "it has ended" : "workers do not know its authority yet"}});
  }
  served_own_.reset();
  leaf_authority_ = current.authority.certificate_pem;
  const std::lock_guard lock(mutex_);
  leaf_ends_ = now + kLeafLife;
  return made;
}

Status CertificateKeeper::read_secret(bool leading, SystemTime now) {
  auto read = read_keys(parts_.client, parts_.secret);
  if (!read && read.error().code == Code::kNotFound) {
    log_warn("control", "the Secret of the keys is missing and is created again",
             {{"secret", parts_.secret.name}});
    return restore_keys(parts_.client, parts_.secret, keys());
  }
  if (!read) return read.error();
  FoundKeys found = *std::move(read);
  Status written = Unit{};
  const std::string own = own_ ? own_->authority_pem : "";
  if (auto next = leading ? rotated(found.keys, own, now) : std::nullopt) {
    written = write_keys(parts_.client, parts_.secret, found.json, *next);
    if (written) {
      const bool of_files = next->own.pem != found.keys.own.pem;
      log_info("control", "authority of the control API",
               {{"reason", of_files     ? "OwnChanged"
                           : next->next ? "NextAnnounced"
                                        : "Changed"}});
      found.keys = *std::move(next);
    }
  }
  take(std::move(found.keys));
  return written;
}

CertificateKeeper::Changes CertificateKeeper::refresh(bool leading) {
  Changes changes;
  const SystemTime now = parts_.clock.system_now();
  const std::string before = bundle();
  const auto note = [&changes](const Status& done) {
    if (!done) changes.errors.push_back(done.error());
  };
  note(read_own(now));
  note(read_secret(leading, now));
  changes.bundle = bundle() != before;
  const Keys current = keys();
  const OwnCertificate* const own = usable_own(current, now);
  changes.own = own != nullptr;
  const bool due =
      own != nullptr
          ? !served_own_ || served_own_->identity.certificate_pem != own->identity.certificate_pem
          : served_own_ || leaf_authority_ != current.authority.certificate_pem ||
                leaf_ends() - now <= kLeafRenew;
  if (!due) return changes;
  auto made = leaf();
  if (made) {
    changes.leaf = *std::move(made);
  } else {
    changes.errors.push_back(made.error());
  }
  return changes;
}

}  // namespace weir::control_server
