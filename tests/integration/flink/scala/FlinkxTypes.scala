import java.util.UUID
import org.apache.flink.api.common.typeinfo.TypeInformation
import org.apache.flinkx.api.serializers._

final case class Address(street: String, zip: Option[Int])

sealed trait Event
final case class Click(page: String, at: Long) extends Event
final case class Purchase(price: BigDecimal) extends Event
case object Closed extends Event

final case class Customer(
    id: Long,
    name: String,
    tags: List[String],
    scores: Map[String, Int],
    address: Address,
    events: Vector[Event],
    token: UUID,
    contact: Either[String, Long]
)

/** What `FlinkxStates.java` keeps, with the type information that flink-scala-api derives. */
object FlinkxTypes {
  val keyInfo: TypeInformation[(String, Int)]         = implicitly[TypeInformation[(String, Int)]]
  val eventInfo: TypeInformation[Event]               = implicitly[TypeInformation[Event]]
  val customerInfo: TypeInformation[Customer]         = implicitly[TypeInformation[Customer]]
  val amountInfo: TypeInformation[Option[BigDecimal]] = implicitly[TypeInformation[Option[BigDecimal]]]

  def key(n: Int): (String, Int) = (s"k${n % 5}", n)

  def event(n: Int): Event = n % 3 match {
    case 0 => Closed
    case 1 => Click(s"page $n", n * 1000L)
    case _ => Purchase(BigDecimal(n) / 4)
  }

  def customer(n: Int): Customer = Customer(
    n,
    if (n % 7 == 0) null else s"größe $n",
    List.tabulate(n % 3)(i => s"tag $i"),
    Map("a" -> n, "b" -> -n),
    Address(s"street $n", if (n % 2 == 0) Some(n) else None),
    Vector.tabulate(n % 4)(event),
    new UUID(n * 31L, -n),
    if (n % 2 == 0) Left(s"c$n") else Right(n)
  )

  def amount(n: Int): Option[BigDecimal] = if (n % 3 == 0) None else Some(BigDecimal(n) / 8)
}
