#include "runtime/comm/Agree.h"

#include "runtime/comm/CallText.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice {

namespace {
/// What a rank shows the others.
struct Shown {
  uint64_t length = 0;
  std::array<uint8_t, maxAgreedBytes> hash{};

  bool operator==(const Shown &) const = default;
};
} // namespace

/// The first bytes in hexadecimal, as people compare them.
static std::string hexText(const Shown &shown) {
  std::string text;
  for (size_t i = 0; i < std::min<uint64_t>(shown.length, 8); ++i) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[shown.hash[i] >> 4];
    text += digits[shown.hash[i] & 15];
  }
  return text + (shown.length > 8 ? "..." : "");
}

Status agree(Communicator &comm, std::span<const std::byte> hash, std::string_view what) {
  if (hash.size() > maxAgreedBytes)
    return Status::usage("a hash of " + std::to_string(hash.size()) +
                         " bytes, expected at most " + std::to_string(maxAgreedBytes));
  std::vector<Shown> all(static_cast<size_t>(comm.size()));
  std::vector<ElementRange> shards;
  for (uint64_t r = 0; r < all.size(); ++r)
    shards.push_back({r, r + 1});
  Shown &own = all[comm.rank()];
  own.length = hash.size();
  if (!hash.empty())
    std::memcpy(own.hash.data(), hash.data(), hash.size());
  const Part part{all.data(), all.size() * sizeof(Shown)};
  if (Status status =
          comm.allGather({&part, 1}, sizeof(Shown), shards, {"start", 0, what});
      !status.ok())
    return status;
  std::vector<int> others;
  for (int r = 1; r < comm.size(); ++r)
    if (all[r] != all[0])
      others.push_back(r);
  if (others.empty())
    return Status::success();
  std::string text = ranksText(others, comm.size()) +
                     (others.size() == 1 ? " has" : " have") + " another " +
                     std::string(what) + " than rank 0: ";
  text += hexText(all[others[0]]) + " where rank 0 has " + hexText(all[0]);
  return Status::refused(text + "; give every rank the same " + std::string(what));
}

} // namespace sluice
