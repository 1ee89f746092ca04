import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** A job whose state is a POJO: fields of every kind, another POJO and an enum among them. */
class ProfileJobs {
    /** In an order that is not that of the alphabet. */
    public enum Tier { GOLD, BRONZE, SILVER }

    /** A POJO within the POJO. */
    public static class Address {
        public String city;
        public int zip;
    }

    /** What is known of a word. */
    public static class Profile {
        public long id;
        public String name;
        public Integer age;
        public double score;
        public Tier tier;
        public Address address;
    }

    static class Profiles extends KeyedProcessFunction<String, String, String> {
        private final boolean restoring;
        private transient ValueState<Profile> profile;

        Profiles(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            profile = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("profile", Types.POJO(Profile.class)));
        }

        @Override
        public void processElement(String word, Context context, Collector<String> out)
                throws Exception {
            if (!restoring) {
                Profile made = new Profile();
                made.id = word.hashCode();
                made.name = word;
                made.tier = Tier.SILVER;
                profile.update(made);
                Jobs.SEEN.incrementAndGet();
                return;
            }
            Profile held = profile.value();
            Map<String, Object> line = new TreeMap<>();
            line.put("key", word);
            if (held != null) {
                line.put("id", held.id);
                line.put("name", held.name);
                line.put("age", held.age);
                line.put("score", held.score);
                line.put("tier", held.tier == null ? null : held.tier.name());
                line.put("city", held.address == null ? null : held.address.city);
                line.put("zip", held.address == null ? null : held.address.zip);
            }
            out.collect(Json.of(line));
        }
    }
}
