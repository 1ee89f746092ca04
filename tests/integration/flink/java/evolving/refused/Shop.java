import java.util.List;
import java.util.Map;

/** What the job `evolving` keeps, as no job can have it that restores what the old one wrote. */
public class Shop {
    public enum Tier { BRONZE, SILVER, GOLD }

    /** With a zip of another type. */
    public static class Address {
        public String street;
        public long zip;
        public String city;
    }

    public static class Contact {
        public String name;
        public int since;
    }

    public static class Email extends Contact {
        public String email;
        public Address address;
    }

    public static class Phone extends Contact {
        public String number;
        public Integer extension;
    }

    public static class Letter extends Contact {
        public String box;
        public long weight;
    }

    public static class Order {
        public long id;
        public String name;
        public Double price;
        public Tier tier;
        public Address address;
        public Contact contact;
        public List<Address> past;
        public Map<String, Tier> tiers;
    }

    /** With a text that is none. */
    public static class Label {
        public int text;
        public Tier tier;
    }

    static final Class<?>[] REGISTERED = {Email.class, Phone.class};
}
