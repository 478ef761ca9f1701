// Growth: a table of curves over the same sizes: a row for each measure, a column for each size, the exponent last.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "curve.h"
#include "report.h"

namespace holdfast::bench {

class Growth {
 public:
  // `over`: what there is more and more of.
  explicit Growth(std::string over) : over_(std::move(over)) {}

  // One round. Rows come in the order in which they are first added; a row may leave sizes out.
  void add(const std::string& what, const std::string& unit, size_t size, double value, int digits);
  // Prints the table, and gives the curves to the report.
  void tell(Report& report) const;

 private:
  Curve& curve_of(const std::string& what, const std::string& unit, int digits);

  const std::string over_;
  std::vector<Curve> curves_;
};

}  // namespace holdfast::bench
