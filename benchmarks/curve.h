// Curve: how one cost grows with a size (workers, calls in flight, live references), and the power of the size that
// fits it best.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Curve {
  struct Point {
    double size = 0;
    std::vector<double> rounds;
  };

  std::string what, unit;
  std::string over;           // what there is more and more of: "simulated workers"
  std::vector<Point> points;  // by size
  int digits = 0;             // after the decimal point

  // 0: the same for every size; 1: as fast as the size; 2: quadratic. The slope of the logarithms of the medians, by
  // least squares; none where fewer than two of them have a logarithm.
  std::optional<double> exponent() const;
  // Both axes logarithmic, so that the exponent is the slope of what is seen.
  std::string picture(const std::string& title, const std::string& system) const;
};

// "0.98", or "-" where there is none.
std::string exponent_text(const Curve& curve);

}  // namespace holdfast::bench
