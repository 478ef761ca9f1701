// For tests, of higher layers too: certificates that are made when they are needed, in a folder that goes away.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <holdfast/transport/security.h>

namespace holdfast::test {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "holdfast_test_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// An authority and what it signs.
class TestAuthority {
 public:
  explicit TestAuthority(const TestFolder& folder, std::string name) : folder_(folder), name_(std::move(name)) {
    key_.reset(EVP_EC_gen("P-256"));
    certificate_ = make(name_, key_.get(), key_.get(), nullptr, -3600, 3600);
    write(name_ + ".pem", certificate_.get(), nullptr);
  }

  // Files of a worker whose certificate is valid from now + from_s to now + until_s.
  Security worker(const std::string& name, long from_s = -3600, long until_s = 3600) const {
    const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const Certificate made = make(name, key.get(), key_.get(), certificate_.get(), from_s, until_s);
    write(name + ".pem", made.get(), nullptr);
    write(name + ".key", nullptr, key.get());
    return {.mode = SecurityMode::certificates,
            .ca_file = folder_.path(name_ + ".pem"),
            .cert_file = folder_.path(name + ".pem"),
            .key_file = folder_.path(name + ".key")};
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  static Certificate make(const std::string& name, EVP_PKEY* key, EVP_PKEY* signer, X509* issuer, long from_s,
                          long until_s) {
    static long serial = 1;
    Certificate made(X509_new(), X509_free);
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), from_s);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), until_s);
    X509_set_pubkey(made.get(), key);
    X509_NAME* subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made.get(), issuer == nullptr ? subject : X509_get_subject_name(issuer));
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer == nullptr ? made.get() : issuer, made.get(), nullptr, nullptr, 0);
    const char* constraint = issuer == nullptr ? "critical,CA:TRUE" : "critical,CA:FALSE";
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, NID_basic_constraints, constraint);
    X509_add_ext(made.get(), extension, -1);
    X509_EXTENSION_free(extension);
    if (X509_sign(made.get(), signer, EVP_sha256()) == 0) throw std::runtime_error("cannot sign");
    return made;
  }
  void write(const std::string& name, X509* certificate, EVP_PKEY* key) const {
    FILE* file = std::fopen(folder_.path(name).c_str(), "w");
    if (certificate != nullptr) PEM_write_X509(file, certificate);
    if (key != nullptr) PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }

  const TestFolder& folder_;
  const std::string name_;
  Key key_{nullptr, EVP_PKEY_free};
  Certificate certificate_{nullptr, X509_free};
};

inline Security with_secret(const std::string& text, SecurityMode mode = SecurityMode::secret) {
  return {.mode = mode, .secret = Secret(text)};
}

}  // namespace holdfast::test
