import java.util.List;
import java.util.Map;

/** What the job `evolving` keeps, as the new job has it: what Flink migrates by itself. */
public class Shop {
    /** Reordered, and with a constant more. */
    public enum Tier { GOLD, PLATINUM, BRONZE, SILVER }

    /** Without `city`, and with more. */
    public static class Address {
        public String country;
        public int zip;
        public Integer floor;
        public String street;
        public boolean checked;
    }

    public static class Contact {
        public String name;
        public int since;
    }

    /** With a field more. */
    public static class Email extends Contact {
        public String email;
        public Address address;
        public long seen;
    }

    /** With a field less. */
    public static class Phone extends Contact {
        public String number;
    }

    /** Registered nowhere. */
    public static class Letter extends Contact {
        public String box;
        public long weight;
    }

    /** Without `name`, and with more. */
    public static class Order {
        public Map<String, Tier> tiers;
        public List<Address> past;
        public Tier tier;
        public Double price;
        public long id;
        public int quantity;
        public Integer rating;
        public String note;
        public Contact contact;
        public Address address;
    }

    /** Of which the enum alone is another. */
    public static class Label {
        public Tier tier;
        public String text;
    }

    static final Class<?>[] REGISTERED = {Phone.class, Email.class};
}
