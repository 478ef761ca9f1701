#include <holdfast/wire/fields.h>

#include <gtest/gtest.h>

#include <holdfast/wire/wire_test_support.h>

namespace shapes {

struct Point {
  double x = 0, y = 0;
  HOLDFAST_FIELDS(Point, x, y)
  friend bool operator==(const Point&, const Point&) = default;
};

struct Nothing {
  HOLDFAST_FIELDS(Nothing);
};

class Secret {
 public:
  Secret() = default;
  explicit Secret(int number) : number_(number), path_(2) {}
  friend bool operator==(const Secret&, const Secret&) = default;

 private:
  int number_ = 0;
  std::vector<Point> path_;
  HOLDFAST_FIELDS(Secret, number_, path_)
};

struct Tree {
  int value = 0;
  std::vector<Tree> children;
  HOLDFAST_FIELDS(Tree, value, children)
  friend bool operator==(const Tree&, const Tree&) = default;
};

template <class T>
struct Box {
  T content{};
  HOLDFAST_FIELDS(Box, content)
};

// As if from somebody else's header.
struct Foreign {
  int id = 0;
  std::string name;
  friend bool operator==(const Foreign&, const Foreign&) = default;
};
HOLDFAST_FIELDS_OF(Foreign, id, name)

struct ForeignNothing {};
HOLDFAST_FIELDS_OF(ForeignNothing);

// Derived classes must not pass for their base: fields would be lost in silence.
struct DerivedPoint : Point {
  double z = 0;
};
struct DerivedForeign : Foreign {
  int more = 0;
};
struct ListedPoint : Point {
  double z = 0;
  HOLDFAST_FIELDS(ListedPoint, x, y, z)
};

struct Even;
struct Odd {
  std::vector<Even> evens;
  HOLDFAST_FIELDS(Odd, evens)
};
struct Even {
  std::optional<Odd> odd;
  HOLDFAST_FIELDS(Even, odd)
};

namespace inner {
struct Point {
  shapes::Point corner;
  HOLDFAST_FIELDS(Point, corner)
};
}  // namespace inner

#define TEN(p) p##0, p##1, p##2, p##3, p##4, p##5, p##6, p##7, p##8, p##9
#define SEVENTY TEN(a), TEN(b), TEN(c), TEN(d), TEN(e), TEN(f), TEN(g)
struct Wide {
  int SEVENTY;
  HOLDFAST_FIELDS(Wide, SEVENTY)
};
struct ForeignWide {
  int SEVENTY;
};
HOLDFAST_FIELDS_OF(ForeignWide, SEVENTY)

}  // namespace shapes

namespace holdfast::wire {
namespace {

using namespace shapes;

TEST(Fields, AStructIsAnArrayOfItsFields) {
  EXPECT_EQ(hex(encoded(Foreign{.id = 5, .name = "ab"})), "92 05 a2 61 62");
  EXPECT_EQ(hex(encoded(Nothing())), "90");
  EXPECT_EQ(hex(encoded(ForeignNothing())), "90");
}

TEST(Fields, RoundTrip) {
  const Point point{.x = 1.5, .y = -2};
  EXPECT_EQ(decoded<Point>(encoded(point)).take(), point);
  EXPECT_EQ(decoded<Secret>(encoded(Secret(7))).take(), Secret(7));
  const Foreign foreign{.id = 5, .name = "ab"};
  EXPECT_EQ(decoded<Foreign>(encoded(foreign)).take(), foreign);
  const Tree tree{1, {{2, {}}, {3, {{4, {}}}}}};
  EXPECT_EQ(decoded<Tree>(encoded(tree)).take(), tree);
  EXPECT_EQ(decoded<Box<std::string>>(encoded(Box<std::string>{"x"})).take().content, "x");
  EXPECT_TRUE(decoded<Nothing>(encoded(Nothing())).ok());
  EXPECT_TRUE(decoded<ForeignNothing>(encoded(ForeignNothing())).ok());
  ListedPoint listed;
  listed.x = 1;
  listed.z = 3;
  const ListedPoint back = decoded<ListedPoint>(encoded(listed)).take();
  EXPECT_EQ(back.x, 1);
  EXPECT_EQ(back.z, 3);
}

template <class W>
void seventy_fields() {
  W wide{};
  wide.a0 = 1;
  wide.d5 = 2;
  wide.g9 = 3;
  const Bytes bytes = encoded(wide);
  EXPECT_EQ(hex(ByteView(bytes).first(4)), "dc 00 46 01");
  EXPECT_EQ(bytes.back(), 3);
  const W back = decoded<W>(bytes).take();
  EXPECT_EQ(back.a0, 1);
  EXPECT_EQ(back.d5, 2);
  EXPECT_EQ(back.g9, 3);
}

TEST(Fields, ManyFields) {
  seventy_fields<Wide>();
  seventy_fields<ForeignWide>();
}

TEST(Fields, ALocalStructWorks) {
  struct Local {
    int x = 0;
    HOLDFAST_FIELDS(Local, x)
  };
  EXPECT_EQ(decoded<Local>(encoded(Local{.x = 8})).take().x, 8);
}

TEST(Fields, AnotherNumberOfFieldsFailsWithBoth) {
  EXPECT_EQ(decode_error<Point>({0x93, 1, 2, 3}), "at byte 0: expected an array of 2 for Point, found 3");
  EXPECT_EQ(decode_error<Foreign>({0x91, 1}), "at byte 0: expected an array of 2 for Foreign, found 1");
  EXPECT_EQ(decode_error<Nothing>({0x91, 1}), "at byte 0: expected an array of 0 for Nothing, found 1");
  EXPECT_EQ(decode_error<Point>({0x01}), "at byte 0: expected an array, found an integer");
}

TEST(Fields, TypeNames) {
  EXPECT_EQ(type_name<Point>(), "Point{x:f64,y:f64}");
  EXPECT_EQ(type_name<Secret>(), "Secret{number_:i32,path_:list<Point{x:f64,y:f64}>}");
  EXPECT_EQ(type_name<Foreign>(), "Foreign{id:i32,name:str}");
  EXPECT_EQ(type_name<Nothing>(), "Nothing{}");
  EXPECT_EQ(type_name<ForeignNothing>(), "ForeignNothing{}");
  EXPECT_EQ(type_name<Box<std::vector<int>>>(), "Box{content:list<i32>}");
  const std::string types[] = {"i32", "str"};
  EXPECT_EQ(describe_struct("Odd", "a , b ", types), "Odd{a:i32,b:str}");  // as if listed with odd spaces
}

TEST(Fields, TypeNamesOfRecursiveStructsEnd) {
  EXPECT_EQ(type_name<Tree>(), "Tree{value:i32,children:list<Tree>}");
  EXPECT_EQ(type_name<Odd>(), "Odd{evens:list<Even{odd:optional<Odd>}>}");
  EXPECT_EQ(type_name<Even>(), "Even{odd:optional<Odd{evens:list<Even>}>}");
  // Only what is being described is given by name: the second Tree stands beside the first, not in it.
  EXPECT_EQ((type_name<std::pair<Tree, Tree>>()),
            "tuple<Tree{value:i32,children:list<Tree>},Tree{value:i32,children:list<Tree>}>");
  // Told apart by type, not by name.
  EXPECT_EQ(type_name<inner::Point>(), "Point{corner:Point{x:f64,y:f64}}");
}

TEST(Fields, ExactlyKDepthMaxLevelsCanBeSent) {
  // Each Tree is two levels: itself and its list.
  const auto chain = [](size_t trees) {
    Tree tree;
    for (size_t i = 1; i < trees; ++i) {
      Tree parent;
      parent.children.push_back(std::move(tree));
      tree = std::move(parent);
    }
    return tree;
  };
  const Tree deepest = chain(kDepthMax / 2);
  EXPECT_EQ(decoded<Tree>(encoded(deepest)).take(), deepest);
  EXPECT_THROW(encoded(chain(kDepthMax / 2 + 1)), InvalidArgument);
}

static_assert(Encodable<Point> && Encodable<Secret> && Encodable<std::vector<Tree>> && Encodable<Foreign>);
static_assert(Encodable<ListedPoint>);
static_assert(!Encodable<DerivedPoint> && !Encodable<DerivedForeign>);
static_assert(unqualified("a::b::C<d::E>") == "C" && unqualified("C") == "C");

}  // namespace
}  // namespace holdfast::wire
